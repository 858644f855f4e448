"""The methods of ``tf.compat.v1.train.Optimizer``, over torch's ``step()``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from lockstep.docstrings import documented
from lockstep.interface import GATE_GRAPH, GATE_NONE, GATE_OP
from lockstep.messages import pytorch as words
from lockstep.messages.base.differentiation import check_options, not_listed
from lockstep.pytorch.base.fused_step import given_gradients
from lockstep.pytorch.base.gradients import (
    Pairs,
    check_grad_loss,
    check_pairs,
    gradients_set_to,
    listed,
    named_parameters,
)
from lockstep.pytorch.base.reentrant import warn_of_reentrant
from lockstep.pytorch.tensors import shards
from lockstep.pytorch.tensors.foreach import share_elements

__all__ = ["TrainV1", "backward", "check_loss", "evaluate"]

# torch's name of a state tensor -> TF's name. All other names are equal.
SLOT_NAMES = {
    "momentum_buffer": "momentum",
    "exp_avg": "m",
    "exp_avg_sq": "v",
    "sum": "accumulator",
    "square_avg": "rms",
    "grad_avg": "mg",
}
# State of a parameter in torch that is a number, and not a tensor like the parameter.
COUNTERS = {"step", "eta", "mu", "mu_product"}


class TrainV1:
    """The methods that every optimizer and wrapper has besides those of torch."""

    GATE_NONE, GATE_OP, GATE_GRAPH = GATE_NONE, GATE_OP, GATE_GRAPH

    _for_step = False
    """Whether the gradients that are being computed may be overwritten."""
    _explained: frozenset[int] = frozenset()
    """The ids of parameters whose absent gradients have been looked into."""

    @documented
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

        Args:
            loss: a callable without arguments that returns the loss, or the loss
                itself: a 0-d tensor, or any shape if ``grad_loss`` is given. Calls of
                ``torch.utils.checkpoint`` in it need ``use_reentrant=False``.
            var_list: the parameters; None means every parameter of every group.

        Returns:
            A list of (gradient, parameter), None where ``loss`` does not depend on the
            parameter or the parameter is frozen.

        Raises:
            TypeError: the loss is not a tensor.
            VarListError: a TypeError and ValueError; ``var_list`` holds something else
                than tensors.
            ValueError: the loss is not 0-d and ``grad_loss`` is missing.
        """
        owner = self.get_name()
        check_options(owner, gate_gradients, aggregation_method)
        if var_list is None:
            variables = list(named_parameters(self))
        else:
            variables = listed(var_list, owner)
        for variable in variables:
            if not isinstance(variable, Tensor):
                raise not_listed(owner, variable)
        if shards.are_among(variables):
            raise words.SHARDED_LOSS.error(owner=owner)
        value = evaluate(loss) if callable(loss) else loss
        check_loss(value, grad_loss, owner)
        if self._for_step:
            gradients = own_gradients(value, variables)
        else:
            gradients = differentiate(value, variables, grad_loss)
        pairs = list(zip(gradients, variables, strict=True))
        self._explain_absent(value, [p for g, p in pairs if g is None])
        return pairs

    def _explain_absent(self, loss: Tensor, absent: list[Tensor]) -> None:
        """Warn if a checkpoint is why gradients are absent, once per parameter."""
        new = [p for p in absent if p.requires_grad and id(p) not in self._explained]
        if new and loss.requires_grad:
            self._explained = self._explained | set(map(id, new))
            warn_of_reentrant(self.get_name(), loss, new, named_parameters(self))

    def _gradients_for_step(
        self, loss: Callable[[], Tensor], variables: Iterable[Tensor]
    ) -> Pairs:
        """Do as :meth:`compute_gradients`, for a step that follows at once.

        The step may overwrite the gradients. The next call may use their memory again,
        so they are valid only until then.
        """

        def value() -> Tensor:
            answer = loss()
            # Only set now, because the loss may itself call ``compute_gradients``.
            self._for_step = True
            return answer

        try:
            return self.compute_gradients(value, variables)
        finally:
            self._for_step = False

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
        global_step: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        """Take one ``step()`` with these gradients, and with no others.

        Hooks and schedulers see it as a step. Afterwards every ``.grad`` is what it was
        before.

        Args:
            grads_and_vars: pairs of (gradient or None, parameter).
            global_step: 0-d integer tensor, advanced by one.
            name: without effect here.

        Raises:
            TypeError: malformed pairs, or a gradient of another dtype.
            ValueError: no pairs, every gradient absent, a parameter that is in no
                group or named twice, a gradient of another shape.
        """
        owner = self.get_name()
        pairs = check_pairs(grads_and_vars, self, owner)
        check_counter(global_step, owner)
        gradients = {id(parameter): gradient for gradient, parameter in pairs}
        parameters = [p for group in self.param_groups for p in group["params"]]
        listed = [gradients.get(id(parameter)) for parameter in parameters]
        listed = given_gradients(parameters, listed, self.param_groups)
        with gradients_set_to(parameters, listed):
            self.step()
        took_step = self.took_step()
        if global_step is not None:
            global_step += took_step

    @documented
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
        """Call ``compute_gradients`` and hand the result to ``apply_gradients``."""
        check_counter(global_step, self.get_name())
        pairs = self.compute_gradients(
            loss,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        self.apply_gradients(pairs, global_step, name)

    def took_step(self) -> bool | Tensor:
        """Whether the last step counts for ``global_step``; read once a step.

        It is a 0-d bool tensor if only the device has the answer.
        """
        return True

    @documented
    def get_name(self) -> str:
        """Return the optimizer's name."""
        raise NotImplementedError

    def get_slot(self, var: Tensor, name: str) -> Tensor | None:
        """Return the state tensor of ``var`` with this TF or torch name, or None."""
        for key, value in self.state.get(var, {}).items():
            if name in (key, SLOT_NAMES.get(key)):
                return value
        return None

    def get_slot_names(self) -> list[str]:
        """Return the TF names of the state tensors that exist."""
        keys = dict.fromkeys(key for slots in self.state.values() for key in slots)
        return [SLOT_NAMES.get(key, key) for key in keys if key not in COUNTERS]

    def variables(self) -> list[Tensor]:
        """Return all state tensors."""
        values = (value for slots in self.state.values() for value in slots.values())
        return [value for value in values if isinstance(value, Tensor)]


def evaluate(closure: Callable[[], Any] | None) -> Any:
    """Call a closure with gradients enabled; without one, return None."""
    if closure is None:
        return None
    if not callable(closure):
        raise words.NOT_A_CLOSURE.error(got=closure)
    with torch.enable_grad():
        return closure()


def check_loss(loss: Any, grad_loss: Any, owner: str) -> None:
    """Raise unless the loss is 0-d and real, or any tensor that ``grad_loss`` fits."""
    if not isinstance(loss, Tensor):
        raise words.NOT_DIFFERENTIABLE.error(owner=owner, got=type(loss).__name__)
    check_grad_loss(grad_loss, owner)
    if grad_loss is None and loss.numel() != 1:
        raise words.NOT_SCALAR.error(owner=owner, got=list(loss.shape))
    if grad_loss is None and loss.is_complex():
        raise words.COMPLEX_LOSS.error(owner=owner, dtype=loss.dtype)
    if isinstance(grad_loss, Tensor) and not expands_to(grad_loss, loss):
        raise words.GRAD_LOSS_SHAPE.error(
            owner=owner, expected=list(loss.shape), got=list(grad_loss.shape)
        )


def expands_to(grad_loss: Tensor, loss: Tensor) -> bool:
    """Whether one value of ``grad_loss`` belongs to each element of the loss."""
    try:
        grad_loss.expand_as(loss)
    except RuntimeError:
        return False
    return True


def differentiate(
    loss: Tensor, variables: list[Tensor], grad_loss: Tensor | float | None
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


def own_gradients(loss: Tensor, variables: list[Tensor]) -> list[Tensor | None]:
    """Do as :func:`differentiate`, but no two gradients share memory.

    ``backward`` copies a gradient if another object holds it, but it overlooks views:
    the gradients of ``a[None] + b[None]`` are two views of one tensor. Afterwards each
    ``.grad`` is what it was before.
    """
    with gradients_set_to(variables, [None] * len(variables)):
        backward(loss, variables)
        gradients = [variable.grad for variable in variables]
    if share_elements([g for g in gradients if g is not None]):
        return [None if g is None else g.clone() for g in gradients]
    return gradients


def backward(loss: Tensor, variables: Iterable[Tensor]) -> None:
    """Add the gradients of these variables to their ``.grad``, and no others."""
    inputs = [variable for variable in variables if variable.requires_grad]
    if inputs and loss.requires_grad:
        torch.autograd.backward(loss, inputs=inputs)


def check_counter(global_step: Any, owner: str) -> None:
    """Raise unless ``global_step`` is None or a 0-d integer tensor."""
    if global_step is None:
        return
    if not isinstance(global_step, Tensor):
        raise words.NOT_A_COUNTER.error(owner=owner, got=type(global_step).__name__)
    dtype = global_step.dtype
    is_integer = not (dtype.is_floating_point or dtype.is_complex)
    if global_step.dim() or not is_integer or dtype == torch.bool:
        got = f"a {dtype} tensor of shape {list(global_step.shape)}"
        raise words.NOT_A_COUNTER.error(owner=owner, got=got)
