"""Accumulated gradient normalization: asynchronous workers that share weights.

The shared weights are in :mod:`lockstep.pytorch.agn_center`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer

from lockstep import errors
from lockstep.checks import check_integer
from lockstep.interface import NO_GRADIENTS, NO_STEP, StepReport
from lockstep.pipeline import has_layer, stages_of
from lockstep.pytorch import gradients
from lockstep.pytorch.agn_center import Center, RemoteCenter, powers
from lockstep.pytorch.foreach import add, copy, number_like, subtract, zero
from lockstep.pytorch.fused import overwrites_gradients
from lockstep.pytorch.gradients import named_parameters
from lockstep.pytorch.wrapper import OptimizerWrapper, require_optimizer
from lockstep.ray.center import RayCenter, as_ray_host

GRADIENT, DELTA = COMMITS = ("gradient", "delta")

OWN = "agn"
"""The entry of a worker and its center in a saved state."""

StateDict = dict[str, Any]


class AGNCustomGetter:
    """Make the shared weight and the accumulator of each of a worker's parameters.

    torch has no variable scopes, so the getter is called with a model or its parameters
    instead. Workers of one process share one center.

    Args:
        worker_device: without effect; an accumulator is on its parameter's device.
        center: the :class:`Center` of the other workers, their getter's ``center``;
            None creates one. ``"ray://NAME"`` or a :class:`~lockstep.ray.RayCenter` is
            a center in its own process, for workers of other processes and machines.

    Attributes:
        center: the weights that the workers share.
        names: parameter -> its name at the center.

    Raises:
        GetterError: a TypeError; ``center`` is no center.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.AGNCustomGetter``. There an accumulator
    has the variable's value until the init op has run; here it starts at zero.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> first = AGNCustomGetter("cpu")
        >>> sgd = torch.optim.SGD(first(model), lr=0.1)
        >>> second = AGNCustomGetter("cpu", center=first.center)
        >>> _ = second(torch.nn.Linear(2, 1))
        >>> list(second.center.parameters)
        ['weight', 'bias']
    """

    def __init__(
        self,
        worker_device: torch.device | str,
        center: Center | RayCenter | str | None = None,
    ) -> None:
        if host := as_ray_host(center):
            center = RemoteCenter(host)
        elif center is not None and not isinstance(center, Center):
            raise errors.GetterError(
                "AGNCustomGetter: center: expected the center of another worker's "
                f"getter, got {type(center).__name__}; pass center=getter.center."
            )
        else:
            center = Center() if center is None else center.for_worker()
        self.center: Center = center
        self.worker_device = worker_device
        self.may_add = False
        self.names: dict[Tensor, str] = {}
        self._global_map: dict[Tensor, Parameter] = {}
        self._grad_map: dict[Tensor, Tensor] = {}

    def __call__(
        self, parameters: nn.Module | Iterable[Tensor] | Iterable[tuple[str, Tensor]]
    ) -> list[Tensor]:
        """Register parameters and return them, for the worker's optimizer.

        Parameters that do not require gradients are not registered, and known ones do
        not change. The worker that registers first may add parameters later; other
        workers can only use existing ones.

        Args:
            parameters: a module, its ``named_parameters()`` or its ``parameters()``.
                The last have their places as names, so all workers must pass them in
                the same order.

        Raises:
            GetterError: a TypeError; ``parameters`` is none of these.
            UnsupportedError: a ValueError; the name of a parameter is another's; the
                center has no weight of its name, or one of another shape or dtype.
                Then nothing is registered.
        """
        if isinstance(parameters, nn.Module):
            parameters = parameters.named_parameters()
        entries = [None] if isinstance(parameters, Tensor) else list(parameters)
        entries = [e if isinstance(e, tuple) else (None, e) for e in entries]
        if not all(isinstance(e[-1], Tensor) for e in entries):
            raise errors.GetterError(
                "AGNCustomGetter: expected a module, a list of parameters or of pairs "
                f"(name, parameter), got {parameters!r:.80}; pass the worker's model."
            )
        with self.center.lock:
            new = self._named(entries)
            self.may_add = self.may_add or not self.center.parameters
            shared = self.center.join(new, self.may_add)
            for name, parameter in new.items():
                self._global_map[parameter] = shared[name]
                self._grad_map[parameter] = torch.zeros_like(parameter.detach())
                self.names[parameter] = name
        return [parameter for _, parameter in entries]

    def _named(self, entries: Iterable[tuple[str | None, Tensor]]) -> dict[str, Tensor]:
        """Return the new trained parameters by their names at the center."""
        new: dict[str, Tensor] = {}
        known, taken = set(self._global_map), set(self.names.values())
        for place, (name, parameter) in enumerate(entries, start=len(taken)):
            while name is None and str(place) in taken:
                place += 1
            name = str(place) if name is None else name
            if not parameter.requires_grad or parameter in known:
                continue
            if name in taken:
                raise errors.UnsupportedError(
                    "AGNCustomGetter: expected one parameter of each name, got another "
                    f"{name!r}; pass one model that has both, or "
                    "named_parameters(prefix=...)."
                )
            new[name] = parameter
            known.add(parameter)
            taken.add(name)
        return new


class AGNOptimizer(OptimizerWrapper):
    """Train a worker's own weights; every P steps push a mean gradient to shared ones.

    With P = ``communication_period``, g a gradient at the worker's weights w, a the
    accumulator of w and c the shared weights, for each parameter with a gradient:

    1. ``optimizer`` applies g to w;
    2. a = a + g;
    3. local_step = local_step + 1, once a call, whatever the number of groups;
    4. if local_step is a multiple of P: a = a / P; a copy of ``optimizer`` applies a to
       c, with slots and powers of beta that belong to c, and with this worker's
       hyper-parameters; then global_step = global_step + 1, w = c, a = 0. The slots of
       w stay.

    With ``commit="delta"``, as in the paper, step 2 adds to a the change that step 1
    made to w, and step 4 is c = c + a / P. A parameter whose gradient is absent in the
    call that ends a round is neither pushed nor pulled.

    ``state_dict`` has an entry "agn" with the accumulators, the local step, the shared
    weights and their state. With a center on Ray it has only the worker's part, because
    such a center saves itself. The worker's weights are saved with the model.
    ``torch.distributed.checkpoint`` would lose the entry, so save the whole.

    Args:
        optimizer: any optimizer of torch for dense gradients, a wrapper included; its
            groups contain the parameters that were passed to the getter.
        num_worker: the number of workers, >= 1; it changes no result.
        custom_getter: the :class:`AGNCustomGetter` that made the shared weights.
        communication_period: P: local steps between two pushes, >= 1.
        use_locking: without effect.
        name: the name that ``get_name`` returns.
        commit: ``"gradient"`` or ``"delta"``.

    Raises:
        NotAnOptimizerError: a TypeError; ``optimizer`` is no optimizer of torch.
        GetterError: a TypeError; ``custom_getter`` is no getter of torch.
        OutOfRangeError: a ValueError; a period or count below 1.
        UnknownNameError: a ValueError; an unknown ``commit``.
        UnsupportedError: a ValueError; ``optimizer`` scales losses, trains masters, or
            needs its closure several times per step (LBFGS), or its groups differ from
            those of the other workers.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.AGNOptimizer``; J. Hermans, G. Spanakis,
    R. Moeckel, "Accumulated Gradient Normalization", 2017 (arXiv:1710.02368). There the
    powers of beta belong to the worker, row clipping inside does not clip the shared
    rows, and ``get_slot`` and ``variables`` return nothing.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> getter = AGNCustomGetter("cpu")
        >>> sgd = torch.optim.SGD(getter([weight]), lr=0.5)
        >>> worker = AGNOptimizer(sgd, 1, getter, communication_period=2)
        >>> with worker.make_session_run_hook(is_chief=True, task_index=0):
        ...     for gradient in (1.0, 0.5):
        ...         worker.apply_gradients([(torch.tensor([gradient]), weight)])
        ...         print(weight.item(), worker.last_step.reason)
        0.5 every gradient was present; local step 1, 1 more before the push
        0.625 every gradient was present; local step 2, pushed and pulled
    """

    GLOBAL_VARIABLE_NAME = "global_center_variable"
    GRAD_VARIABLE_NAME = "grad_variable"

    _takes_shards = False
    _ended_round = False
    _followed = 0

    def __init__(
        self,
        optimizer: Optimizer,
        num_worker: int,
        custom_getter: AGNCustomGetter,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
        commit: str = GRADIENT,
    ) -> None:
        require_optimizer("AGNOptimizer", optimizer, errors.NotAnOptimizerError)
        if "unscale" in stages_of(optimizer) or has_layer(optimizer, "AGNOptimizer"):
            raise errors.UnsupportedError(
                "AGNOptimizer: expected the optimizer that a worker trains with, got "
                f"{type(optimizer).__name__}; put the loss scale around AGNOptimizer, "
                "and make one AGNOptimizer for each worker."
            )
        if not isinstance(custom_getter, AGNCustomGetter):
            raise errors.GetterError(
                "AGNOptimizer: custom_getter: expected an AGNCustomGetter, got "
                f"{custom_getter!r}; pass the one that has the worker's parameters."
            )
        if commit not in COMMITS:
            raise errors.unknown_name("AGNOptimizer: commit", commit, COMMITS)
        check_integer("AGNOptimizer", "num_worker", num_worker)
        check_integer("AGNOptimizer", "communication_period", communication_period)
        super().__init__(optimizer)
        self.custom_getter = custom_getter
        self.num_worker = num_worker
        self.name = name
        self.commit = commit
        self.communication_period = int(communication_period)
        self.local_step = 0
        self.last_step: StepReport = NO_STEP
        self._follow_groups()

    def _follow_groups(self) -> None:
        """Give the center's optimizer the groups of ours."""
        super()._follow_groups()
        center, known = self.custom_getter.center, self.custom_getter._global_map
        with center.lock:
            center.follow(self.inner_optimizer, known)
            center.begin(self.commit)
            self._followed = len(known)

    def get_init_op(self, task_index: int) -> None:
        """Set every parameter to its shared weight, and its accumulator to 0.

        TensorFlow returns an operation; here it runs immediately. ``task_index`` has no
        effect, as in the original.

        Raises:
            NoGradientsError: a ValueError; the getter has no parameters.
        """
        if not self.custom_getter._global_map:
            raise errors.NoGradientsError(
                "AGNOptimizer.get_init_op: expected at least one trainable parameter, "
                "got none; call the AGNCustomGetter with the worker's parameters first."
            )
        self._begin_round(self.custom_getter._global_map)

    @contextmanager
    def make_session_run_hook(self, is_chief: bool, task_index: int) -> Iterator[None]:
        """Return a context that runs the init op on entry.

        Run the training loop inside it. With a center on Ray, the context exits when
        training is ended, and it notifies the center that this worker is done. The
        arguments have no effect.
        """
        self.get_init_op(task_index)
        with suppress(errors.TrainingEndedError):
            yield
        self.custom_getter.center.leave()

    def step_inner(self) -> None:
        """Take the local step and accumulate; if a round ends, communicate."""
        everything = named_parameters(self)
        present = [parameter for parameter in everything if parameter.grad is not None]
        if not present:
            self.inner_optimizer.step()
            self.note_no_gradients()
            return
        if self._only_wants_state(present):
            raise errors.UnsupportedError(
                "AGNOptimizer: expected to be saved by torch.save(state_dict()), got "
                "torch.distributed.checkpoint, which leaves the shared weights out; "
                "save and load the whole state."
            )
        for parameter in present:
            if parameter not in self.custom_getter._global_map:
                raise errors.NotFromGetterError(
                    "AGNOptimizer: expected parameters that the AGNCustomGetter has, "
                    f"got {everything[parameter]!r}; pass it to the getter first, and "
                    "again if it was frozen then."
                )
        before: list[Tensor] = []  # Copies of what the local step overwrites.
        if self.commit == DELTA:
            before = [parameter.detach().clone() for parameter in present]
        elif any(map(overwrites_gradients, self.param_groups)):
            before = [parameter.grad.detach().clone() for parameter in present]
        self.inner_optimizer.step()
        inner = getattr(self.inner_optimizer, "last_step", None)
        with torch.no_grad():
            changes = before or [parameter.grad for parameter in present]
            if self.commit == DELTA:
                changes = subtract([p.detach() for p in present], before)
            changes = [g.to_dense() if g.is_sparse else g for g in changes]
            add(self._accumulators(present), changes)
        self.local_step += 1
        self._ended_round = self.local_step % self.communication_period == 0
        if self._ended_round:
            self._communicate(present)
        self.last_step = self._report(inner, everything)

    def _accumulators(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        return [self.custom_getter._grad_map[parameter] for parameter in parameters]

    @torch.no_grad()
    def _communicate(self, parameters: Sequence[Tensor]) -> None:
        """End a round for ``parameters``: push the mean changes, then pull."""
        getter, period = self.custom_getter, self.communication_period
        if self._followed != len(getter._global_map):
            # Parameters that were frozen at first have been passed to the getter since.
            self._follow_groups()
        sums = self._accumulators(parameters)
        means = [total / number_like(period, total) for total in sums]
        names = [getter.names[parameter] for parameter in parameters]
        left_out = {"params", "param_names", *powers(self)}
        options = [
            {key: value for key, value in group.items() if key not in left_out}
            for group in self.param_groups
        ]
        changes = dict(zip(names, means, strict=True))
        getter.center.push(changes, None if self.commit == DELTA else options)
        self._begin_round(parameters)

    @torch.no_grad()
    def _begin_round(self, parameters: Iterable[Tensor]) -> None:
        """Set ``parameters`` to the shared weights, and their accumulators to 0."""
        parameters, names = list(parameters), self.custom_getter.names
        pulled = self.custom_getter.center.pull([names[p] for p in parameters])
        copy([p.detach() for p in parameters], [pulled[names[p]] for p in parameters])
        zero(self._accumulators(parameters))

    def _report(
        self, inner: StepReport | None, parameters: Mapping[Tensor, str]
    ) -> StepReport:
        """Return what a step did; ``inner`` is the report of a wrapper inside."""
        left = -self.local_step % self.communication_period
        ending = f"{left} more before the push" if left else "pushed and pulled"
        if inner is None:
            skipped = tuple(name for p, name in parameters.items() if p.grad is None)
            reason = f"of {len(parameters)} gradients {len(skipped)} absent"
            reason = reason if skipped else "every gradient was present"
            inner = StepReport(True, reason, skipped)
        reason = f"{inner.reason}; local step {self.local_step}, {ending}"
        return inner._replace(reason=reason)

    def note_no_gradients(self) -> None:
        self._ended_round, self.last_step = False, NO_GRADIENTS
        super().note_no_gradients()

    def took_step(self) -> bool:
        """Whether the last step ended a round, which ``global_step`` counts."""
        return self._ended_round

    def step_numbers(self) -> dict[str, float]:
        """Return the last step's numbers and the local step: see the base class."""
        own = {"local_step": self.local_step, "ended_round": int(self._ended_round)}
        return {**super().step_numbers(), **own, **self.custom_getter.center.numbers()}

    def get_name(self) -> str:
        """Return the constructor's ``name``."""
        return self.name

    def get_slot(self, var: Tensor, name: str) -> Tensor | None:
        """Return a slot of a worker's parameter or of a shared weight.

        Besides the wrapped optimizer's slots there are two, named by the constants of
        this class.
        """
        getter = self.custom_getter
        if name == self.GLOBAL_VARIABLE_NAME:
            return getter._global_map.get(var)
        if name == self.GRAD_VARIABLE_NAME:
            return getter._grad_map.get(var)
        shared = getter.center.slot(var, name)
        own = gradients.get_slot(self.inner_optimizer, var, name)
        return own if shared is None else shared

    def get_slot_names(self) -> list[str]:
        """Return the names of all slots, including the two of this class."""
        inner = gradients.get_slot_names(self.inner_optimizer)
        return [*inner, self.GRAD_VARIABLE_NAME, self.GLOBAL_VARIABLE_NAME]

    def variables(self) -> list[Tensor]:
        """Return the state of the wrapped optimizer, the worker and the center."""
        getter, center = self.custom_getter, self.custom_getter.center
        shared = [*center.parameters.values(), *gradients.variables(center.optimizer)]
        inner = gradients.variables(self.inner_optimizer)
        return [*inner, *getter._grad_map.values(), *shared]

    def _save_inner(self) -> StateDict:
        getter, center = self.custom_getter, self.custom_getter.center
        own = {
            "local_step": self.local_step,
            "communication_period": self.communication_period,
            "commit": self.commit,
            "accumulators": {n: getter._grad_map[p] for p, n in getter.names.items()},
        }
        if not center.saves_itself:
            weights = {name: w.detach() for name, w in center.parameters.items()}
            own |= {"weights": weights, "optimizer": center.optimizer.state_dict()}
        return {**super()._save_inner(), OWN: own}

    def _of_inner(self, state_dict: StateDict) -> StateDict:
        return {key: value for key, value in state_dict.items() if key != OWN}

    def _check_saved(self, state_dict: StateDict) -> None:
        """Raise for the state of another stack or ``commit``, and for missing parts."""
        super()._check_saved(state_dict)
        own, getter = state_dict.get(OWN), self.custom_getter
        if own is None:  # The state of a bare optimizer.
            return
        accumulators = {n: p.shape for p, n in getter.names.items()}
        expected: StateDict = {"commit": self.commit, "accumulators": accumulators}
        if not getter.center.saves_itself:
            shared = getter.center.parameters.items()
            expected["weights"] = {name: weight.shape for name, weight in shared}
        got = {"commit": own["commit"]}
        for part in {"accumulators", "weights"} & own.keys():
            got[part] = {name: tensor.shape for name, tensor in own[part].items()}
        if got != expected:
            raise errors.UnsupportedError(
                f"AGNOptimizer: expected a state with {expected}, got one with {got}; "
                "load the state of the same model and commit. A center on Ray loads "
                "its own."
            )
        check_integer("AGNOptimizer", "local_step", own["local_step"], 0)
        period = own["communication_period"]
        check_integer("AGNOptimizer", "communication_period", period)

    @torch.no_grad()
    def _load_inner(self, state_dict: StateDict) -> None:
        super()._load_inner(self._of_inner(state_dict))
        own, getter = state_dict.get(OWN), self.custom_getter
        if own is None:
            return
        self.local_step = own["local_step"]
        self.communication_period = own["communication_period"]
        for parameter, name in getter.names.items():
            getter._grad_map[parameter].copy_(own["accumulators"][name])
        if not getter.center.saves_itself:
            for name, weight in getter.center.parameters.items():
                weight.copy_(own["weights"][name])
            getter.center.optimizer.load_state_dict(own["optimizer"])
