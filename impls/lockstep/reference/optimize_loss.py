"""``optimize_loss`` over NumPy variables: one object that takes the whole step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lockstep.interface import Gradient, Rows, StepReport
from lockstep.reference.accumulate import add_share
from lockstep.reference.automatic_scaler import AutomaticLossScaler
from lockstep.reference.loss_scale import is_finite
from lockstep.reference.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.reference.optimizers import (
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    Optimizer,
    Pairs,
    RMSPropOptimizer,
    RuleOptimizer,
)
from lockstep.reference.post_process import post_process_gradients
from lockstep.reference.reduction import reduce_gradients
from lockstep.reference.variable import Variable
from lockstep.spec import optimize_loss as words
from lockstep.spec.reduction import Reduction
from lockstep.spec.summaries import Recorder, Summaries, check_summaries

__all__ = ["OPTIMIZER_CLS_NAMES", "TrainingStep", "optimize_loss"]

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Optimizer]] = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": MomentumOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
    "AdamW": AdamWOptimizer,
}
"""The names that ``optimize_loss`` takes, and their classes."""


class TrainingStep:
    """What ``optimize_loss`` returns: a call computes the gradients and takes a step.

    ``step(*inputs)`` hands its arguments to the loss. With ``iter_size`` > 1 a call
    adds its share, and each ``iter_size``-th one updates; ``skip_update``, in the call
    or at construction, decides instead.

    Attributes:
        optimizer: what updates, the masters' wrapper with "mixed".
        global_step: the applied steps, an int64 variable.
        learning_rate: the rate of the last call.
        last_step: what the last call did.
        scaler: the automatic loss scaler, or None.
        accumulators: the sum so far for each variable; None where nothing was added.
        micro_step: the micro-batches in it.
        recorder: who is told the summaries of each applied step, or None.
    """

    recorder: Recorder | None = None
    last_step: StepReport | None = None

    def __init__(
        self,
        settings: words.Settings,
        loss: Callable[..., Iterable[Gradient]],
        variables: Sequence[Variable],
        learning_rate_decay_fn: Callable[[Any], Any],
    ) -> None:
        self.settings = settings
        self.loss = loss
        self.variables = variables
        self.learning_rate_decay_fn = learning_rate_decay_fn
        self.global_step = Variable("global_step", 0, np.int64)
        self.learning_rate: Any = self.next_rate()
        self.optimizer: Any = None
        self.weight_decay: Any = None
        self.scaler: AutomaticLossScaler | None = None
        self.summaries: frozenset[str] = frozenset()
        self.skip_update_ph: Any = None
        self.model: Any = None
        self.reduction: Reduction | None = None
        self.accumulators: list[Gradient] = [None] * len(variables)
        self.micro_step = 0
        self.clear()

    @property
    def pipeline(self) -> tuple[str, ...]:
        """The stages that a gradient goes through here, in their order."""
        return self.settings.pipeline(self.optimizer)

    def __call__(self, *inputs: Any, skip_update: Any = None) -> None:
        """Differentiate the loss and take a step, or add a micro-batch.

        Args:
            inputs: for the loss.
            skip_update: whether to add only; None: as was said at construction.

        Returns:
            None: a loss of the reference is its gradients, so it has no value.
        """
        self.learning_rate = self.next_rate()
        loss = partial(self.loss, *inputs)
        pairs = self.optimizer.compute_gradients(loss, self.variables)
        if self.settings.accumulates:
            pairs = self.accumulate(pairs)
            if self.waits(skip_update):
                size = self.settings.iter_size
                self.last_step = words.report_accumulated(self.micro_step, size)
                return
        self.apply(pairs)
        self.clear()

    def next_rate(self) -> Any:
        """Return the rate at the steps applied so far."""
        rate = self.learning_rate_decay_fn(self.global_step.value.copy())
        if not self.settings.strict:
            words.check_rate(rate)
        return rate

    def accumulate(self, pairs: Pairs) -> Pairs:
        """Add a micro-batch; return the sums so far, paired as its gradients were."""
        if self.settings.strict:
            check_accumulated(pairs)
        size = self.settings.iter_size
        self.accumulators = [
            add_share(total, gradient, size)
            for total, (gradient, _) in zip(self.accumulators, pairs, strict=True)
        ]
        self.micro_step += 1
        variables = [variable for _, variable in pairs]
        return list(zip(self.accumulators, variables, strict=True))

    def waits(self, skip_update: Any) -> bool:
        """Say whether the sum has to wait for more micro-batches."""
        flag = self.skip_update_ph if skip_update is None else skip_update
        flag = flag() if callable(flag) else flag
        return self.micro_step < self.settings.iter_size if flag is None else bool(flag)

    def apply(self, pairs: Pairs) -> None:
        """Bring the gradients into their final form and hand them to the optimizer."""
        settings = self.settings
        if settings.on_horovod:
            pairs = reduce_gradients(pairs, True, self.model, self.reduction)
        if settings.strict or self.fits(pairs):
            pairs = self.post_process(pairs)
        self.set_hyper_parameters()
        self.optimizer.apply_gradients(pairs, self.global_step)
        names = [variable.name for variable in self.variables]
        absent = [n for n, (g, _) in zip(names, pairs, strict=True) if g is None]
        inner = getattr(self.optimizer, "last_step", None)
        self.last_step = words.report_applied(inner, names, absent)

    def fits(self, pairs: Pairs) -> bool:
        """Say whether gradients are finite, where a step that is not is skipped.

        They are looked at before they are clipped: the optimizer names those that are
        not finite, and clipping would spoil the others.
        """
        if "finite check" not in self.pipeline:
            return True
        return all(is_finite(gradient) for gradient, _ in pairs)

    def post_process(self, pairs: Pairs) -> Pairs:
        """Clip or scale by LARC; tell the recorder what was asked for."""
        settings = self.settings
        told = Summaries(self.summaries, self.recorder)
        told.scalar("learning_rate", "learning_rate", self.learning_rate)
        if "unscale" in self.pipeline:
            told.scalar("loss_scale", "loss_scale", self.optimizer.loss_scale)
        return post_process_gradients(
            pairs,
            sorted(self.summaries),
            self.learning_rate,
            settings.clip_gradients,
            settings.larc_params,
            recorder=self.recorder,
            strict=settings.strict,
        )

    def set_hyper_parameters(self) -> None:
        """Give the base optimizer the rate of this step, and AdamW its decay."""
        base = base_of(self.optimizer)
        name = "lr" if "lr" in base.arguments else "learning_rate"
        now = {name: self.learning_rate}
        if self.weight_decay is not None:
            now["weight_decay"] = self.decay()
        base.arguments = {**base.arguments, **now}

    def decay(self) -> Any:
        """Return AdamW's decay at this step: the rate times what was given."""
        given = self.weight_decay
        return self.learning_rate * (given() if callable(given) else given)

    def clear(self) -> None:
        """Empty the sums. Strict: zeros, there from the start."""
        self.micro_step = 0
        self.accumulators = [None] * len(self.variables)


def optimize_loss(
    loss: Callable[..., Iterable[Gradient]],
    optimizer: str | Callable[..., Optimizer] | Optimizer,
    optimizer_params: Mapping[str, Any] | None,
    learning_rate_decay_fn: Callable[[Any], Any],
    var_list: Iterable[Variable] | None = None,
    dtype: Any = np.float32,
    clip_gradients: float | None = None,
    summaries: Sequence[str] | None = None,
    larc_params: Mapping[str, Any] | None = None,
    loss_scaling: Any = 1.0,
    loss_scaling_params: Mapping[str, Any] | None = None,
    on_horovod: bool = False,
    iter_size: int = 1,
    skip_update_ph: Any = None,
    model: Any = None,
    *,
    reduction: Reduction | None = None,
    strict: bool = False,
) -> TrainingStep:
    """Return an object that takes one step of training each time it is called.

    rate = learning_rate_decay_fn(steps applied so far); g = gradients of the loss, times
    1 / scale; with ``iter_size`` > 1, g = sum of g / iter_size over the micro-batches;
    averaged over ranks; not finite: the step is left out ("mixed"); clipped or scaled by
    LARC; then the optimizer's update, and the step counts.

    Args:
        loss: a function that returns the gradients, one for each variable.
        optimizer: a name of ``OPTIMIZER_CLS_NAMES``; or a class, or a function that
            makes an optimizer, called with ``learning_rate=`` and
            ``optimizer_params``; or, without these, an optimizer.
        optimizer_params: the optimizer's arguments by name. "AdamW" by name decays by
            rate x ``weight_decay``.
        learning_rate_decay_fn: steps applied so far (int64 array) -> rate.
        var_list: the variables to train.
        dtype: float32, float16 or "mixed": half-precision variables with float32
            masters, and the loss scaled.
        clip_gradients: the largest global norm, > 0. Not together with LARC.
        summaries: names of ``OPTIMIZER_SUMMARIES``; None: ``learning_rate``,
            ``global_gradient_norm`` and ``loss_scale``. Told to ``recorder``.
        larc_params: ``larc_eta``, ``larc_mode``, ``min_update``, ``epsilon``.
        loss_scaling: with "mixed": a number, "Backoff" or "LogMax", or a scale object.
        loss_scaling_params: of the named scaler.
        on_horovod: average over the ranks of ``reduction``.
        iter_size: micro-batches in a step.
        skip_update_ph: whether to add only: a bool, or a function that is asked at each
            call. None: each ``iter_size``-th call updates.
        model: as in OpenSeq2Seq; without effect.
        reduction: what averages; None is a rank of its own.
        strict: as in OpenSeq2Seq, quirks included: ``optimizer_params`` of "AdamW" are
            changed in place, ``iter_size`` is ignored without ``on_horovod`` and needs
            ``skip_update_ph`` with it, then absent and sparse gradients are refused;
            clipping comes before the look for infinities; a named scaler is made also
            without "mixed".

    Raises:
        ValueError: an unknown name (the nearest is given), a value out of its range, no
            ``var_list``.
        TypeError: an argument that the optimizer needs or does not have.
        KeyError: "AdamW" without ``weight_decay``.
        RuntimeError: ``loss`` is no function.
        AttributeError and ValueError in one: clipping and LARC together.

    Origin: OpenSeq2Seq (8681d381ed40), ``optimizers/optimizers.py``.
    """
    settings = words.Settings(
        dtype=dtype,
        clip_gradients=clip_gradients,
        larc_params=larc_params,
        loss_scaling=loss_scaling,
        on_horovod=on_horovod,
        iter_size=iter_size,
        has_flag=skip_update_ph is not None,
        strict=strict,
    )
    names = check_summaries(summaries, words.OWNER)
    if not callable(loss):
        raise words.loss_not_callable(loss)
    if var_list is None:
        raise words.no_variables("var_list, since NumPy cannot find variables")
    step = TrainingStep(settings, loss, list(var_list), learning_rate_decay_fn)
    step.summaries, step.skip_update_ph = names, skip_update_ph
    step.model, step.reduction = model, reduction
    if settings.makes_scaler:
        step.scaler = AutomaticLossScaler(loss_scaling, loss_scaling_params, strict)
    base = make_optimizer(step, optimizer, optimizer_params)
    step.optimizer = with_masters(step, base, loss_scaling)
    return step


def make_optimizer(
    step: TrainingStep, optimizer: Any, optimizer_params: Mapping[str, Any] | None
) -> Optimizer:
    """Make the optimizer from its name or class; by default take one that is made."""
    strict = step.settings.strict
    arguments = words.arguments_for(optimizer, optimizer_params, strict)
    if isinstance(optimizer, Optimizer):
        if strict or arguments:
            raise words.instance(optimizer, arguments)
        return optimizer
    if optimizer == words.DECAYING:
        step.weight_decay = arguments["weight_decay"]
        arguments["weight_decay"] = float(step.decay())
        if strict:
            # Quirk: docs/differences.md#optimize-loss-dict
            optimizer_params["weight_decay"] = step.decay  # type: ignore[index]
    make = make_of(optimizer, strict)
    if not callable(make):
        raise words.not_an_optimizer(optimizer, "lockstep.reference optimizer")
    arguments.pop("use_locking", None)
    rate = {words.rate_argument(make): float(step.learning_rate)}
    return make(**rate, **arguments)


def make_of(optimizer: Any, strict: bool) -> Callable[..., Optimizer]:
    """Return what makes an optimizer: the class of a name, or what was given."""
    if not isinstance(optimizer, str):
        return optimizer  # type: ignore[no-any-return]
    make = OPTIMIZER_CLS_NAMES[optimizer]
    return partial(make, strict=True) if strict else make


def with_masters(step: TrainingStep, base: Optimizer, loss_scaling: Any) -> Optimizer:
    """Wrap the optimizer for half-precision variables, if they are to have masters."""
    settings = step.settings
    if not settings.mixed:
        return base
    scale = loss_scaling if step.scaler is None else step.scaler
    return MixedPrecisionOptimizerWrapper(base, scale, strict=settings.strict)


def base_of(optimizer: Any) -> RuleOptimizer:
    """Return the innermost optimizer, which holds the rate."""
    while not isinstance(optimizer, RuleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def check_accumulated(pairs: Pairs) -> None:
    """Strict: raise for what the original cannot add up."""
    for gradient, variable in pairs:
        if gradient is None:
            raise words.absent_accumulated(variable.name)
        if isinstance(gradient, Rows):
            raise words.sparse_accumulated(variable.name)
