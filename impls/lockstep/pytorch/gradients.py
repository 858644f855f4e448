"""Gradients of one step, and TensorFlow's methods of an optimizer over torch's.

``compute_gradients``, ``apply_gradients``, ``minimize`` and the slots are functions
here. The wrappers and the optimizers of TF 1's rules have them as their methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep import errors
from lockstep.checks import require
from lockstep.interface import GATE_GRAPH, GATE_NONE, GATE_OP
from lockstep.pipeline import stages_of
from lockstep.pytorch import foreach, fused, shards

Pairs = list[tuple[Tensor | None, Tensor]]

# torch's name of a state tensor -> TF's name. All other names are equal.
SLOT_NAMES = {
    "momentum_buffer": "momentum",
    "exp_avg": "m",
    "exp_avg_sq": "v",
    "sum": "accumulator",
    "square_avg": "rms",
    "grad_avg": "mg",
}
MASTER = "master"
"""The key of a float32 master in the state of a parameter."""
NO_SLOTS = {"step", "eta", "mu", "mu_product", MASTER}
"""State of a parameter in torch that is a number, or is not the optimizer's."""
MISMATCHES = {
    "shape": errors.ShapeError,
    "dtype": errors.DtypeError,
    "device": errors.UnsupportedError,
}
"""What a gradient and its parameter have in common -> the error if they do not."""


def named_parameters(optimizer: Optimizer) -> dict[Tensor, str]:
    """Return each parameter of all groups once -> its name, or its position."""
    return {
        parameter: group["param_names"][position]
        if "param_names" in group
        else f"param_groups[{number}]['params'][{position}]"
        for number, group in enumerate(optimizer.param_groups)
        for position, parameter in enumerate(group["params"])
    }


def name_in(names: Mapping[Tensor, str], parameter: Tensor) -> str:
    """Return the name of a parameter, also of one that has left the groups since."""
    return names.get(parameter) or f"a removed parameter {list(parameter.shape)}"


def dtype_name(tensor: Tensor) -> str:
    """Return the name of a tensor's dtype, such as ``float32``."""
    return str(tensor.dtype).removeprefix("torch.")


@contextmanager
def gradients_set_to(
    parameters: Iterable[Tensor], gradients: Iterable[Tensor | None]
) -> Iterator[None]:
    """Replace ``.grad`` inside the block, and restore it afterwards."""
    before = [(parameter, parameter.grad) for parameter in parameters]
    try:
        for (parameter, _), gradient in zip(before, gradients, strict=True):
            parameter.grad = gradient
        yield
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient


def refuse_sharded(
    owner: str, parameters: Iterable[Tensor], option: str | None = None
) -> None:
    """Raise if any is split over ranks, which ``option`` or the owner does not take."""
    if shards.are_among(parameters):
        needed = f" for {option}" if option else ""
        remedy = f"leave {option} out, or train" if option else "train"
        raise errors.UnsupportedError(
            f"{owner}: expected parameters that are whole on each rank{needed}, got a "
            "DTensor, as fully_shard (FSDP2) or tensor parallelism makes it; "
            f"{remedy} in DistributedDataParallel."
        )


# -- differentiating -------------------------------------------------------------------


def compute_gradients(
    self,
    loss: Tensor | Callable[[], Tensor],
    var_list: Iterable[Tensor] | None = None,
    gate_gradients: int = GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    grad_loss: Tensor | float | None = None,
) -> Pairs:
    """Differentiate ``loss``; no ``.grad`` is read or written.

    A wrapper inside with a loss scale scales the loss and divides the gradients.

    Args:
        loss: a callable without arguments that returns the loss, or the loss itself: a
            0-d tensor, or any shape if ``grad_loss`` is given. Calls of
            ``torch.utils.checkpoint`` in it need ``use_reentrant=False``.
        var_list: the parameters; None means every parameter of every group.
        gate_gradients, aggregation_method, colocate_gradients_with_ops: options of
            graphs in TensorFlow; checked, without effect here.
        grad_loss: the upstream gradient of ``loss``; the default is 1.

    Returns:
        A list of (gradient, parameter), None where ``loss`` does not depend on the
        parameter or the parameter is frozen.

    Raises:
        LossNotCallableError: a RuntimeError and TypeError; the loss is not a tensor.
        VarListError: a TypeError and ValueError; ``var_list`` holds something else than
            tensors.
        ValueError: the loss is not 0-d and ``grad_loss`` is missing; a parameter is a
            DTensor; an option is not one of TensorFlow's.
    """
    inner = getattr(self, "inner_optimizer", None)
    if hasattr(inner, "inner_optimizer") and "unscale" in stages_of(inner):
        options = gate_gradients, aggregation_method, colocate_gradients_with_ops
        return inner.compute_gradients(loss, var_list, *options, grad_loss)
    owner = self.get_name()
    gates, methods = (GATE_NONE, GATE_OP, GATE_GRAPH), (None, 0, 1, 2)
    fine = gate_gradients in gates
    require(owner, "gate_gradients", gate_gradients, fine, f"one of {gates}")
    fine = aggregation_method in methods
    require(owner, "aggregation_method", aggregation_method, fine, f"one of {methods}")
    variables = listed(self, var_list)
    if shards.are_among(variables):
        raise errors.UnsupportedError(
            f"{owner}: expected parameters that are whole on each rank, got a DTensor; "
            "call loss.backward() and the optimizer's step(), which take DTensors."
        )
    value = evaluate(loss) if callable(loss) else loss
    check_loss(value, grad_loss, owner)
    if self._for_step:
        with gradients_set_to(variables, [None] * len(variables)):
            backward(value, variables)  # Copies a gradient that something else holds.
            gradients = [variable.grad for variable in variables]
    else:
        gradients = differentiate(value, variables, grad_loss)
    return own_pairs(list(zip(gradients, variables, strict=True)), self._for_step)


def gradients_for_step(
    optimizer: Any, loss: Callable[[], Tensor], variables: Iterable[Tensor]
) -> Pairs:
    """Call ``compute_gradients`` for a step that follows and may overwrite them."""

    def value() -> Tensor:
        answer = loss()
        # Only set now, because the loss may itself call ``compute_gradients``.
        optimizer._for_step = True
        return answer

    try:
        return optimizer.compute_gradients(value, variables)
    finally:
        optimizer._for_step = False


def listed(optimizer: Any, var_list: Any) -> list[Tensor]:
    """Return ``var_list`` as a list of tensors; None means all parameters."""
    if var_list is None:
        return list(named_parameters(optimizer))
    is_list = isinstance(var_list, Iterable) and not isinstance(var_list, str | Tensor)
    entries = list(var_list) if is_list else [var_list]
    for entry in entries:
        if not is_list or not isinstance(entry, Tensor):
            raise errors.VarListError(
                f"{optimizer.get_name()}: var_list: expected a list of parameters, got "
                f"{type(entry).__name__}; list those that are to be trained."
            )
    return entries


def evaluate(closure: Callable[[], Any]) -> Any:
    with torch.enable_grad():
        return closure()


def check_loss(loss: Any, grad_loss: Any, owner: str) -> None:
    """Raise unless the loss is a tensor, 0-d and real if there is no ``grad_loss``."""
    if not isinstance(loss, Tensor):
        raise errors.LossNotCallableError(
            f"{owner}: loss: expected a loss tensor, or a callable that returns one, "
            f"got {type(loss).__name__}; pass the loss itself, or a function without "
            "arguments that computes it."
        )
    if grad_loss is None and (loss.numel() != 1 or loss.is_complex()):
        raise errors.UnsupportedError(
            f"{owner}: expected a real 0-d loss, got {dtype_name(loss)} of shape "
            f"{list(loss.shape)}; sum it, or give grad_loss of the same shape."
        )


def differentiate(
    loss: Tensor, variables: Sequence[Tensor], grad_loss: Tensor | float | None
) -> list[Tensor | None]:
    """Return d loss / d variable, or None where the loss does not depend on it."""
    inputs = [variable for variable in variables if variable.requires_grad]
    if not inputs or not loss.requires_grad:
        return [None] * len(variables)
    if grad_loss is not None:
        grad_loss = torch.as_tensor(grad_loss, dtype=loss.dtype, device=loss.device)
        grad_loss = grad_loss.expand_as(loss)
    gradients = iter(torch.autograd.grad(loss, inputs, grad_loss, allow_unused=True))
    return [
        next(gradients) if variable.requires_grad else None for variable in variables
    ]


def own_pairs(pairs: Pairs, in_place: bool) -> Pairs:
    """Return pairs whose gradients may be overwritten: copies if they share memory."""
    present = [g for g, _ in pairs if g is not None]
    if in_place and foreach.share_elements(present):
        return [(None if g is None else g.clone(), p) for g, p in pairs]
    return pairs


def backward(loss: Tensor, variables: Iterable[Tensor]) -> None:
    """Add the gradients of these variables to their ``.grad``, and no others."""
    inputs = [variable for variable in variables if variable.requires_grad]
    if inputs and loss.requires_grad:
        torch.autograd.backward(loss, inputs=inputs)


# -- applying --------------------------------------------------------------------------


def apply_gradients(
    self,
    grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
    global_step: Tensor | None = None,
    name: str | None = None,
) -> None:
    """Take one ``step()`` with these gradients, and with no others.

    Hooks and schedulers see it as a step. The given gradients are not changed, so
    unscaling or clipping makes a copy. Afterwards every ``.grad`` is what it was
    before.

    Args:
        grads_and_vars: pairs of (gradient or None, parameter). A gradient is dense or
            sparse and has the shape, dtype and device of its parameter.
        global_step: 0-d integer tensor, advanced by one unless the step is skipped.
            With ``capturable`` on the device of the parameters.
        name: without effect here.

    Raises:
        MalformedPairsError: a TypeError; an entry is no (gradient, parameter).
        NoGradientsError: a ValueError; no pairs, or every gradient is None.
        ShapeError, DtypeError: a ValueError and a TypeError; a gradient does not fit.
        ValueError: a parameter is in no group, or named twice.
    """
    owner = self.get_name()
    pairs = as_pairs(grads_and_vars, owner)
    check_counter(global_step, owner)
    self._lend(True)
    try:
        pairs = self._as_trained(pairs)
        check_pairs(pairs, self, owner)
        gradients = {id(parameter): gradient for gradient, parameter in pairs}
        groups = self.param_groups
        parameters = [p for group in groups for p in group["params"]]
        given = [gradients.get(id(parameter)) for parameter in parameters]
        if any(map(fused.overwrites_gradients, groups)):
            given = [None if g is None else g.clone() for g in given]
        given = fused.in_layouts(parameters, given, groups)
        with gradients_set_to(parameters, given):
            self.step()
        took_step = self.took_step()
    finally:
        self._lend(False)
    if global_step is not None:
        global_step += took_step


def minimize(
    self,
    loss: Tensor | Callable[[], Tensor],
    global_step: Tensor | None = None,
    var_list: Iterable[Tensor] | None = None,
    gate_gradients: int = GATE_OP,
    aggregation_method: int | None = None,
    colocate_gradients_with_ops: bool = False,
    name: str | None = None,
    grad_loss: Tensor | float | None = None,
) -> None:
    """Call ``compute_gradients`` and pass the result to ``apply_gradients``."""
    check_counter(global_step, self.get_name())
    options = gate_gradients, aggregation_method, colocate_gradients_with_ops
    pairs = self.compute_gradients(loss, var_list, *options, grad_loss)
    self.apply_gradients(pairs, global_step, name)


def check_pairs(pairs: Pairs, optimizer: Optimizer, owner: str) -> None:
    """Raise for pairs that do not fit, before anything changes."""
    # ``id`` is used because the hash of a tensor is slow. Names are only looked up for
    # errors.
    left = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for gradient, parameter in pairs:
        if id(parameter) not in left:
            raise_not_a_parameter(gradient, parameter, optimizer, owner)
        left.remove(id(parameter))
        if gradient is not None and not is_alike(gradient, parameter):
            name = named_parameters(optimizer)[parameter]
            check_gradient(gradient, parameter, name, owner)
    if all(gradient is None for gradient, _ in pairs):
        names = named_parameters(optimizer)
        raise errors.NoGradientsError(
            f"{owner}: expected a gradient, got None for every one of "
            f"{', '.join(names[p] for _, p in pairs)}; check that the loss depends on "
            "them."
        )


def as_pairs(grads_and_vars: Any, owner: str, may_be_empty: bool = False) -> Pairs:
    """Return an iterable of (tensor or None, anything) as a list, or raise."""
    is_iterable = isinstance(grads_and_vars, Iterable)
    pairs = list(grads_and_vars) if is_iterable else [grads_and_vars]
    if not pairs and not may_be_empty:
        raise errors.NoGradientsError(
            f"{owner}: expected at least one (gradient, parameter) pair, got an empty "
            "list; pass what compute_gradients returned."
        )
    for position, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise errors.MalformedPairsError(
                f"{owner}: expected an iterable of (gradient, parameter) pairs, got "
                f"{type(pair).__name__} at position {position}; pass what "
                "compute_gradients returned."
            )
        if pair[0] is not None and not isinstance(pair[0], Tensor):
            raise errors.MalformedPairsError(
                f"{owner}: expected a tensor or None, got {type(pair[0]).__name__} at "
                f"position {position}; convert it with torch.as_tensor."
            )
    return [(gradient, parameter) for gradient, parameter in pairs]


def raise_not_a_parameter(
    gradient: Any, parameter: Any, optimizer: Optimizer, owner: str
) -> None:
    """Raise for a parameter that is repeated, unknown or not a tensor."""
    names = {id(p): name for p, name in named_parameters(optimizer).items()}
    if id(parameter) in names:
        raise errors.UnsupportedError(
            f"{owner}: expected each parameter once, got {names[id(parameter)]!r} "
            "twice; add its gradients up first."
        )
    if id(gradient) in names or not isinstance(parameter, Tensor):
        raise errors.MalformedPairsError(
            f"{owner}: expected (gradient, parameter) pairs, got "
            f"{type(parameter).__name__} as the parameter; put the gradient first."
        )
    raise errors.UnknownNameError(
        f"{owner}: expected parameters of this optimizer's groups, got another of "
        f"shape {list(parameter.shape)}; add it with add_param_group first."
    )


def is_alike(gradient: Tensor, parameter: Tensor) -> bool:
    """Whether a gradient has the shape, dtype and device of its parameter."""
    return (
        gradient.shape == parameter.shape
        and gradient.dtype == parameter.dtype
        and gradient.device == parameter.device
    )


def check_gradient(gradient: Tensor, parameter: Any, name: str, owner: str) -> None:
    for what, error in MISMATCHES.items():
        expected, got = getattr(parameter, what), getattr(gradient, what)
        if got != expected:
            raise error(
                f"{owner}: expected a gradient of the {what} {expected} for {name!r}, "
                f"got {got}; pass the gradient of this parameter, or convert it."
            )


def check_counter(global_step: Any, owner: str) -> None:
    """Raise unless ``global_step`` is None or a 0-d integer tensor."""
    got, fine = type(global_step).__name__, global_step is None
    if isinstance(global_step, Tensor):
        got = f"a {dtype_name(global_step)} tensor of shape {list(global_step.shape)}"
        fine = "int" in dtype_name(global_step) and not global_step.dim()
    if not fine:
        raise errors.DtypeError(
            f"{owner}: expected global_step to be None or a 0-d integer tensor, got "
            f"{got}; make one with torch.zeros((), dtype=torch.int64)."
        )


# -- slots -----------------------------------------------------------------------------


def get_slot(self, var: Tensor, name: str) -> Tensor | None:
    """Return the state tensor of ``var`` with this TF or torch name, or None."""
    for key, value in self.state.get(var, {}).items():
        if name in (key, SLOT_NAMES.get(key)):
            return value
    return None


def get_slot_names(self) -> list[str]:
    """Return the TF names of the state tensors that exist."""
    entries = [entry for entry in self.state.values() if isinstance(entry, Mapping)]
    keys = dict.fromkeys(key for entry in entries for key in entry)
    return [SLOT_NAMES.get(key, key) for key in keys if key not in NO_SLOTS]


def variables(self) -> list[Tensor]:
    """Return all state tensors."""
    entries = [e if isinstance(e, Mapping) else {"": e} for e in self.state.values()]
    values = (value for entry in entries for value in entry.values())
    return [value for value in values if isinstance(value, Tensor)]
