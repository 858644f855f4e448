"""The base of all wrappers: a torch optimizer around another one."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
)
from torch.utils.hooks import RemovableHandle

from lockstep import pipeline
from lockstep.errors import UnsupportedError
from lockstep.interface import GATE_GRAPH, GATE_NONE, GATE_OP
from lockstep.pytorch import gradients
from lockstep.pytorch.gradients import MASTER, evaluate, refuse_sharded

HOOK_TABLES = [name for name in Optimizer.__annotations__ if name.endswith("_hooks")]


def require_optimizer(owner: str, opt: Any, error: type[Exception]) -> None:
    """Raise unless ``opt`` is an optimizer, not its class or something else."""
    if not isinstance(opt, Optimizer):
        kind = f"the class {opt.__name__}" if isinstance(opt, type) else repr(opt)
        raise error(
            f"{owner}: expected a torch.optim.Optimizer, got {kind:.80}; pass the "
            "optimizer itself."
        )


def _live(name: str) -> property:
    """Return a property for ``name``, an attribute of the wrapped optimizer."""

    def read(self: OptimizerWrapper) -> Any:
        return getattr(self.inner_optimizer, name)

    def write(self: OptimizerWrapper, value: Any) -> None:
        setattr(self.inner_optimizer, name, value)

    return property(read, write, doc=f"``{name}`` of the wrapped optimizer, live.")


class OptimizerWrapper(Optimizer):
    """An optimizer whose groups, state and defaults are those of ``inner_optimizer``.

    Nothing is copied. So both see every change of a group, for example by a scheduler
    or ``load_state_dict``. Hooks that are registered on the wrapper run once a step and
    get the wrapper. Hooks of the wrapped optimizer still get that optimizer. A subclass
    overrides :meth:`step_inner`.

    Raises:
        UnsupportedError: ``inner_optimizer`` needs its closure several times a step
            (LBFGS).
    """

    GATE_NONE, GATE_OP, GATE_GRAPH = GATE_NONE, GATE_OP, GATE_GRAPH

    # So GradScaler checks the gradients itself and skips the whole step.
    _step_supports_amp_scaling = False

    _divides_inside = False
    """Whether the optimizer inside may divide gradients as it updates, not earlier."""

    _undivided_by = 1.0
    """What the gradients of this step are still multiplied by, then."""

    _takes_shards = True
    """Whether the wrapper can train DTensors if it is not capturable."""

    _for_step = False
    """Whether the gradients that are being computed may be overwritten."""

    _summaries: RemovableHandle | None = None

    param_groups = _live("param_groups")
    state = _live("state")
    defaults = _live("defaults")

    compute_gradients = gradients.compute_gradients
    apply_gradients = gradients.apply_gradients
    minimize = gradients.minimize
    get_slot = gradients.get_slot
    get_slot_names = gradients.get_slot_names

    def __init__(self, inner_optimizer: Optimizer) -> None:
        closure = inspect.signature(inner_optimizer.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            self._refuse_closure(inner_optimizer)
        groups = inner_optimizer.param_groups
        self._refuse_sharded(p for group in groups for p in group["params"])
        self.__setstate__({"inner_optimizer": inner_optimizer})

    def _refuse_closure(self, optimizer: Optimizer) -> None:
        raise UnsupportedError(
            f"{type(self).__name__}: expected an optimizer whose step() works on the "
            f"gradients that are there, got {type(optimizer).__name__}, which "
            "evaluates its closure itself; use it without a wrapper."
        )

    def _refuse_sharded(self, parameters: Iterable[Tensor]) -> None:
        """Raise if a parameter is a DTensor but the wrapper needs whole parameters."""
        if not self._takes_shards:
            refuse_sharded(type(self).__name__, parameters)
        elif vars(self).get("capturable"):
            refuse_sharded(type(self).__name__, parameters, "capturable=True")

    def __getstate__(self) -> dict[str, Any]:
        """Return the public attributes. As in torch, hooks are not copied."""
        own = vars(self).items()
        return {k: v for k, v in own if not k.startswith("_") and k != "step"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for table in HOOK_TABLES:
            vars(self).setdefault(table, OrderedDict())
        self._patch_step_function()

    def __getattr__(self, name: str) -> Any:
        """Forward an attribute of the wrapped optimizer; of methods, train and eval."""
        missing = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name == "inner_optimizer" or name.startswith("__"):
            raise AttributeError(missing)
        inner = self.inner_optimizer
        if isinstance(inner, OptimizerWrapper) and hasattr(inner, name):
            return getattr(inner, name)
        base = pipeline.base_of(inner)
        if not hasattr(base, name):
            raise AttributeError(missing)
        value = getattr(base, name)
        if callable(value) and name not in ("train", "eval"):
            raise AttributeError(
                f"{missing}: expected a method of the wrapper, got one of "
                f"{type(base).__name__}, which would update past it; call "
                f"inner_optimizer.{name} if that is what you want."
            )
        return value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner_optimizer!r})"

    # -- steps -------------------------------------------------------------------------

    # torch would trace a step again whenever one of its numbers changes.
    @torch._disable_dynamo
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step with the gradients in ``.grad``.

        Args:
            closure: computes the loss and its gradients again. It is called once,
                before anything else.

        Returns:
            The result of ``closure``, or None without one.
        """
        if (
            self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks
        ):
            arguments = () if closure is None else (closure,)
            return self._step_with_hooks(*arguments)
        return self._step(closure)

    # Otherwise torch would look for hooks and open a profiler range in every step.
    step.hooked = True

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step without calling the hooks."""
        # A group that was added later may contain the first DTensor.
        if not self._takes_shards or vars(self).get("capturable"):
            groups = self.param_groups
            self._refuse_sharded(p for group in groups for p in group["params"])
        if closure is None:
            self.step_inner()
            return None
        loss = evaluate(closure)
        try:
            self.step_inner()
        except (RuntimeError, AssertionError, TypeError) as error:
            if "closure" in str(error):  # SAM takes closure=None, and fails without.
                self._refuse_closure(pipeline.base_of(self))
            raise
        return loss

    _step_with_hooks = Optimizer.profile_hook_step(_step)

    def step_inner(self) -> None:
        """Call the wrapped optimizer's ``step``."""
        self.inner_optimizer.step()

    def _as_trained(self, pairs: gradients.Pairs) -> gradients.Pairs:
        """Return pairs of what the innermost optimizer trains."""
        if isinstance(self.inner_optimizer, OptimizerWrapper):
            return self.inner_optimizer._as_trained(pairs)
        return pairs

    def _lend(self, is_lent: bool) -> None:
        """Tell all wrappers whether the next step has a caller's gradients."""
        if isinstance(self.inner_optimizer, OptimizerWrapper):
            self.inner_optimizer._lend(is_lent)

    def _only_wants_state(self, with_gradient: Sequence[Tensor]) -> bool:
        """Whether ``torch.distributed.checkpoint`` takes this step to create the state.

        It must reach the wrapped optimizer, because otherwise the checkpoint would not
        be loaded, and have no other effect.
        """
        # ``state`` is read last, because some wrappers have to build it first.
        if torch.is_grad_enabled() or self.state:
            return False
        idle = all(group.get("lr") == 0 for group in self.param_groups)
        return idle and not any(bool(p.grad.any()) for p in with_gradient)

    def took_step(self) -> bool | Tensor:
        """Whether the last step counts for ``global_step``; 0-d if on the device."""
        inner = self.inner_optimizer
        return inner.took_step() if hasattr(type(inner), "took_step") else True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, as the wrapped optimizer does it."""
        self.inner_optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the wrapped optimizer, whose errors are raised."""
        self.inner_optimizer.add_param_group(param_group)
        try:
            self._follow_groups()
        except BaseException:
            del self.param_groups[-1]
            raise

    def _follow_groups(self) -> None:
        """Raise if a group that was added cannot be trained here."""
        self._refuse_sharded(self.param_groups[-1]["params"])

    # -- reports -----------------------------------------------------------------------

    def note_no_gradients(self) -> None:
        """Set ``last_step`` to that of a step without gradients, here and inside."""
        if isinstance(self.inner_optimizer, OptimizerWrapper):
            self.inner_optimizer.note_no_gradients()

    def step_numbers(self) -> dict[str, float]:
        """Return what the last step did, as numbers by tag, for loggers.

        All wrappers have ``applied`` (0 or 1) and ``skipped_variables``, and some more:

        - wrappers with a loss scale: ``loss_scale``, ``skipped_steps`` and
          ``skipped_in_a_row``. With ``clip_norm`` also ``global_gradient_norm`` and
          ``clip_factor``, if the gradients were finite.
        - row clipping: ``rows`` and ``clipped_rows``.
        - AGN: ``local_step`` and ``ended_round``. With a center on Ray also
          ``center_rounds``, ``staleness`` and ``pushed_bytes``.

        The numbers of wrappers inside are included. A call costs as much as reading
        ``last_step``.
        """
        inner, report = self.inner_optimizer, getattr(self, "last_step", None)
        numbers = inner.step_numbers() if isinstance(inner, OptimizerWrapper) else {}
        if report is not None:
            numbers["applied"] = int(report.applied)
            numbers["skipped_variables"] = len(report.skipped)
            if getattr(report, "norm", None) is not None:
                numbers["global_gradient_norm"] = report.norm
            if getattr(report, "clip_factor", None) is not None:
                numbers["clip_factor"] = report.clip_factor
        return numbers

    def summaries_to(self, target: Any, every: int = 1, start: int = 0) -> None:
        """Pass :meth:`step_numbers` to a writer or a function after each further step.

        Args:
            target: a ``torch.utils.tensorboard.SummaryWriter``, an object with its
                method ``add_scalar``, or a function of (numbers, step). None stops the
                calls.
            every: the number of steps between two calls.
            start: the number of steps that were taken before, as in a resumed run.
        """
        writes = hasattr(target, "add_scalar")
        if self._summaries is not None:
            self._summaries.remove()
            self._summaries = None
        if target is None:
            return
        steps = start

        def pass_on(optimizer: OptimizerWrapper, args: Any, kwargs: Any) -> None:
            nonlocal steps
            steps += 1
            if steps % every:
                return
            numbers = optimizer.step_numbers()
            if not writes:
                target(numbers, steps)
                return
            for tag, value in numbers.items():
                target.add_scalar(tag, value, steps)

        self._summaries = self.register_step_post_hook(pass_on)

    # -- state -------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, with what the wrappers add to it."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        state_dict = self._save_inner()
        for hook in self._optimizer_state_dict_post_hooks.values():
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        return state_dict

    def _save_inner(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state."""
        return self.inner_optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned.

        The wrappers check their own parts, then the wrapped optimizer loads the rest:
        what it accepts is accepted.

        Raises:
            ValueError: not a saved state, or the state of other groups or of another
                stack. Nothing is loaded then.
        """
        if not isinstance(state_dict, Mapping):
            self._refuse_state(f"a {type(state_dict).__name__}")
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        self._check_saved(state_dict)
        self._load_inner(state_dict)
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _refuse_state(self, got: str) -> None:
        raise UnsupportedError(
            f"{type(self).__name__}: expected what state_dict() of the same stack and "
            f"model returned, got {got}; if this is a whole checkpoint, pass its entry "
            "of the optimizer."
        )

    def _check_saved(self, state_dict: dict[str, Any]) -> None:
        """Raise if the state is not of this stack, before anything changes."""
        state, groups = state_dict.get("state"), state_dict.get("param_groups")
        if not isinstance(state, Mapping) or not isinstance(groups, list | tuple):
            self._refuse_state("a dict without 'state' and 'param_groups'")
        entries = [entry for entry in state.values() if isinstance(entry, Mapping)]
        if not hasattr(self, "masters") and any(MASTER in entry for entry in entries):
            self._refuse_state("float32 masters, which no wrapper here keeps")
        if isinstance(self.inner_optimizer, OptimizerWrapper):
            self.inner_optimizer._check_saved(self._of_inner(state_dict))

    def _of_inner(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return a saved state as the wrapped optimizer would have saved it."""
        return state_dict

    def _load_inner(self, state_dict: dict[str, Any]) -> None:
        """Load the state into the wrapped optimizer."""
        self.inner_optimizer.load_state_dict(state_dict)

    def get_name(self) -> str:
        """Return the name of the wrapped optimizer."""
        inner = self.inner_optimizer
        named = hasattr(type(inner), "get_name")
        return inner.get_name() if named else type(inner).__name__

    def variables(self) -> list[Tensor]:
        """Return the state tensors of the wrapped optimizer."""
        inner = self.inner_optimizer
        ours = hasattr(type(inner), "get_slot_names")
        return inner.variables() if ours else gradients.variables(self)
