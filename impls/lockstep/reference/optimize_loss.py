"""``optimize_loss`` of OpenSeq2Seq: the whole training step in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lockstep import errors
from lockstep.checks import number_of
from lockstep.interface import NO_STEP, Gradient, Rows, StepReport
from lockstep.larc import larc_policy
from lockstep.pipeline import base_of, in_order, stages_of, strictly_ordered
from lockstep.reference import arrays, optimizers, post_process
from lockstep.reference.arrays import Pairs, Variable, is_finite
from lockstep.reference.loss_scaling import AutomaticLossScaler
from lockstep.reference.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.reference.optimizers import Optimizer

OWNER = "optimize_loss"

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Optimizer]] = {
    "Adagrad": optimizers.AdagradOptimizer,
    "Adam": optimizers.AdamOptimizer,
    "Ftrl": optimizers.FtrlOptimizer,
    "Momentum": optimizers.MomentumOptimizer,
    "RMSProp": optimizers.RMSPropOptimizer,
    "SGD": optimizers.GradientDescentOptimizer,
    "AdamW": optimizers.AdamWOptimizer,
}
"""Name of an optimizer for ``optimize_loss`` -> its class."""


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
    strict: bool = False,
) -> TrainingStep:
    """Return an object that takes one step of training each time it is called.

    rate = learning_rate_decay_fn(steps applied so far); g = gradients of the loss,
    times 1 / scale; with ``iter_size`` > 1, g = sum of g / iter_size over the
    micro-batches. With "mixed", the step is skipped if g is not finite. g is clipped or
    scaled by LARC. Then the optimizer updates the variables, and the step is counted.
    The summaries of a step go to its ``recorder``.

    Args:
        loss: a function that returns the gradients, one for each variable.
        optimizer: a name of ``OPTIMIZER_CLS_NAMES``; or a class or a function that
            returns an optimizer, called with ``learning_rate=`` and
            ``optimizer_params``; or an optimizer, without ``optimizer_params``.
        optimizer_params: the optimizer's arguments by name. "AdamW" by name decays by
            rate x ``weight_decay``.
        learning_rate_decay_fn: a function that returns the rate, or a number. Each step
            calls it with the number of steps applied so far, int64 and 0-d; see
            ``lr_policies``.
        var_list: the variables to train.
        dtype: float32, float16 or "mixed": half-precision variables with float32
            masters, and the loss scaled.
        clip_gradients: the largest global norm, > 0. Not together with LARC.
        summaries: names of ``OPTIMIZER_SUMMARIES``. None stands for ``learning_rate``,
            ``global_gradient_norm`` and ``loss_scale``.
        larc_params: ``larc_eta``, ``larc_mode``, ``min_update``, ``epsilon``.
        loss_scaling: with "mixed": a number, "Backoff" or "LogMax", or a scale object.
        loss_scaling_params: parameters of the named scaler.
        on_horovod: average over the ranks, of which NumPy has only one.
        iter_size: micro-batches in a step.
        skip_update_ph: whether to accumulate without an update: a bool, or a function
            that is called in each step. None: each ``iter_size``-th call updates.
        model: as in OpenSeq2Seq; without effect.
        strict: as in OpenSeq2Seq, quirks included: ``optimizer_params`` of "AdamW" are
            changed in place; ``iter_size`` is ignored without ``on_horovod`` and needs
            ``skip_update_ph`` with it, then absent and sparse gradients are refused;
            clipping comes before the finite check; an absent gradient is refused with
            the default summaries; a named scaler is created even without "mixed".

    Raises:
        ValueError: an unknown name (the nearest is given), a value out of its range.
        TypeError: an argument that the optimizer needs or does not have.
        KeyError: "AdamW" without ``weight_decay``.
        AttributeError and ValueError in one: clipping and LARC together.

    Origin: OpenSeq2Seq (8681d381ed40), ``optimizers/optimizers.py``.

    Example:
        >>> w = Variable("w", [3.0, 4.0])
        >>> loss = lambda: [w.value]  # of the loss w^2 / 2
        >>> step = optimize_loss(loss, "SGD", {}, 0.5, [w], clip_gradients=2.5)
        >>> step()
        >>> w.value.tolist(), step.pipeline
        ([2.25, 3.0], ('norm', 'clip', 'update'))
    """
    if clip_gradients is not None and larc_params is not None:
        raise errors.ClipAndLarcError(
            f"{OWNER}: expected clip_gradients or larc_params, got both; leave one of "
            "them out."
        )
    mixed = isinstance(dtype, str) and dtype == "mixed"
    if not strict and not mixed and number_of(loss_scaling) != 1:  # arguments-checked
        raise errors.UnsupportedError(
            f"{OWNER}: expected dtype='mixed' beside loss_scaling, got {dtype!r}; "
            "leave loss_scaling out, because it has no effect."
        )
    if larc_params is not None:
        larc_policy(larc_params, not strict)
    step = TrainingStep(
        loss,
        list(var_list or ()),
        learning_rate_decay_fn,
        strict,
        clip_gradients,
        larc_params,
        post_process.requested(summaries, OWNER),
        on_horovod,
        iter_size,
        skip_update_ph,
    )
    if strict and step.accumulates and skip_update_ph is None:  # optimize-loss-flag
        raise errors.UnsupportedError(
            f"{OWNER}: skip_update_ph: expected a flag beside iter_size > 1, got None; "
            "give it, or leave strict off: the steps are counted then."
        )
    if isinstance(loss_scaling, str) and (strict or mixed):  # optimize-loss-scaler
        step.scaler = AutomaticLossScaler(loss_scaling, loss_scaling_params, strict)
    step.optimizer = make_optimizer(step, optimizer, optimizer_params)
    if mixed:
        scale = loss_scaling if step.scaler is None else step.scaler
        masters = MixedPrecisionOptimizerWrapper(step.optimizer, scale, strict=strict)
        float(masters.loss_scale)  # masters-scale-type: raises if it is unusable.
        step.optimizer = masters
    return step


def make_optimizer(
    step: TrainingStep, optimizer: Any, optimizer_params: Any
) -> Optimizer:
    """Return the optimizer for a name, a class or function, or an instance."""
    arguments, result, make = dict(optimizer_params or {}), optimizer, optimizer
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZER_CLS_NAMES:
            known = list(OPTIMIZER_CLS_NAMES)
            raise errors.unknown_name(f"{OWNER}: optimizer", optimizer, known)
        make = OPTIMIZER_CLS_NAMES[optimizer]
        needed = {"Momentum": "momentum", "AdamW": "weight_decay"}.get(optimizer)
        if needed is not None and needed not in arguments:
            text = f"optimizer_params of {optimizer}: expected {needed!r}, got none"
            is_decay = needed == "weight_decay"
            kind: Any = errors.MissingDecayError
            kind = kind if is_decay else errors.MissingArgumentError
            raise kind(f"{OWNER}: {text}; add {needed!r}.")
        make = partial(make, strict=True) if step.strict else make
    if optimizer == "AdamW":
        step.weight_decay = arguments["weight_decay"]
        arguments["weight_decay"] = float(step.decay())
        if step.strict:  # optimize-loss-dict
            optimizer_params["weight_decay"] = DecayNow(step.decay)
    if callable(make):
        result = make(learning_rate=float(step.learning_rate), **arguments)
    # optimize-loss-instance
    is_instance = result is optimizer and (step.strict or arguments)
    if is_instance or not isinstance(result, Optimizer):
        raise errors.NotAnOptimizerError(
            f"{OWNER}: optimizer: expected a name of OPTIMIZER_CLS_NAMES, a class or "
            "function that makes an optimizer, or one without optimizer_params (not "
            f"under strict), got {type(result).__name__}; pass its class."
        )
    return result


class DecayNow:
    """Strict: the entry of "AdamW" in the caller's dict, the rate x weight decay."""

    def __init__(self, product: Callable[[], Any]) -> None:
        self.product = product

    def __float__(self) -> float:
        return float(self.product())


@dataclass(eq=False)
class TrainingStep:
    """The training step that ``optimize_loss`` returns; call it to take a step.

    ``step(*inputs)`` passes its arguments to the loss. With ``iter_size`` > 1 a call
    accumulates gradients, and each ``iter_size``-th call updates the variables, unless
    ``skip_update_ph`` decides.

    Attributes:
        optimizer: the optimizer; with "mixed", the wrapper with masters.
        global_step: the number of applied steps, an int64 variable.
        learning_rate: the rate of the last call.
        last_step: the report of the last call.
        scaler: the automatic loss scaler, or None.
        accumulators: the accumulated gradient of each variable, or None.
        micro_step: the number of accumulated micro-batches.
        recorder: receives the summaries of each applied step; may be None.
    """

    loss: Callable[..., Iterable[Gradient]]
    variables: Sequence[Variable]
    learning_rate_decay_fn: Any
    strict: bool
    clip_gradients: float | None
    larc_params: Mapping[str, Any] | None
    summaries: frozenset[str]
    on_horovod: bool
    iter_size: int
    skip_update_ph: Any
    optimizer: Any = None
    scaler: AutomaticLossScaler | None = None
    weight_decay: Any = None
    recorder: Any = None
    last_step: StepReport = NO_STEP

    def __post_init__(self) -> None:
        self.global_step = Variable("global_step", 0, np.int64)
        self.learning_rate: Any = self.next_rate()
        self.accumulators: list[Gradient] = []
        self.clear()

    @property
    def accumulates(self) -> bool:
        """Whether gradients are accumulated; strict: only with ``on_horovod``."""
        anywhere = not self.strict  # optimize-loss-iter-size
        return self.iter_size > 1 and (self.on_horovod or anywhere)

    @property
    def pipeline(self) -> tuple[str, ...]:
        """The stages of a step that change its gradients, in order."""
        clips = self.clip_gradients is not None
        own = {
            "accumulate": self.accumulates,
            "reduce": self.on_horovod,
            "norm": clips,
            "clip": clips,
            "larc": self.larc_params is not None,
            "update": True,
        }
        active = [name for name, is_active in own.items() if is_active]
        stages = in_order([*stages_of(self.optimizer), *active])
        # optimize-loss-order
        return strictly_ordered(stages) if self.strict else stages

    def __call__(self, *inputs: Any) -> None:
        """Differentiate the loss, and take a step or add a micro-batch."""
        self.learning_rate = self.next_rate()
        loss = partial(self.loss, *inputs)
        pairs = self.optimizer.compute_gradients(loss, self.variables)
        if self.accumulates:
            pairs = self.accumulate(pairs)
            if self.waits():
                self.accumulators = [total for total, _ in pairs]
                self.micro_step += 1
                count = f"{self.micro_step} of {self.iter_size}"
                reason = f"accumulated micro-batch {count}"
                self.last_step = StepReport(False, reason, ())
                return
        self.apply(pairs)
        self.clear()

    def next_rate(self) -> Any:
        """Return the learning rate for the next step."""
        rate = self.learning_rate_decay_fn
        return rate(self.global_step.value.copy()) if callable(rate) else rate

    def accumulate(self, pairs: Pairs) -> Pairs:
        """Return the accumulated gradients with this micro-batch; nothing is stored."""
        for gradient, variable in pairs:
            if self.strict and not isinstance(gradient, np.ndarray):
                is_absent = gradient is None  # optimize-loss-accumulated
                kind: Any = errors.UnsupportedError
                raise (errors.AbsentAccumulatedError if is_absent else kind)(
                    f"{OWNER}: expected a dense gradient for {variable.name!r} with "
                    f"iter_size > 1, got {'None' if is_absent else 'a sparse one'}; "
                    "leave strict off."
                )
        both = zip(self.accumulators, pairs, strict=True)
        return [(add_share(total, g, self.iter_size), v) for total, (g, v) in both]

    def waits(self) -> bool:
        """Return whether this call only accumulates and does not update."""
        flag = self.skip_update_ph
        flag = flag() if callable(flag) else flag
        return self.micro_step + 1 < self.iter_size if flag is None else bool(flag)

    def apply(self, pairs: Pairs) -> None:
        """Reduce and post-process the gradients, then apply them."""
        # Checked before clipping, because clipping by a non-finite norm changes all
        # gradients, and the optimizer reports which ones are not finite.
        checks = not self.strict and "finite check" in self.pipeline
        if not checks or all(is_finite(gradient) for gradient, _ in pairs):
            pairs = self.post_process(pairs)
        base = base_of(self.optimizer)
        base.arguments = {**base.arguments, "learning_rate": self.learning_rate}
        if self.weight_decay is not None:
            base.arguments["weight_decay"] = self.decay()
        self.optimizer.apply_gradients(pairs, self.global_step)
        absent = tuple(v.name for gradient, v in pairs if gradient is None)
        plain = f"{len(pairs) - len(absent)} of {len(pairs)} variables updated"
        report = StepReport(True, plain, absent)
        self.last_step = getattr(self.optimizer, "last_step", report)

    def post_process(self, pairs: Pairs) -> Pairs:
        """Clip or scale by LARC, and record the requested summaries."""
        asked = post_process.Summaries(self.summaries, self.recorder)
        asked.scalar("learning_rate", self.learning_rate)
        scales = "unscale" in self.pipeline
        # optimize-loss-scale-summary
        scaled = self.scaler if self.strict else self.optimizer if scales else None
        if scaled is not None:
            asked.scalar("loss_scale", scaled.loss_scale)
        return post_process.post_process_gradients(
            pairs,
            self.summaries,
            self.learning_rate,
            self.clip_gradients,
            self.larc_params,
            recorder=self.recorder,
            strict=self.strict,
        )

    def decay(self) -> Any:
        """Return AdamW's decay at this step: the rate times ``weight_decay``."""
        return np.float32(self.learning_rate) * float(self.weight_decay)

    def clear(self) -> None:
        """Clear the accumulated gradients."""
        self.micro_step = 0
        self.accumulators = [None] * len(self.variables)


def add_share(total: Gradient, gradient: Gradient, iter_size: int) -> Gradient:
    """Return total + gradient / iter_size, rounded to the gradient's dtype twice.

    If one of them is None, it adds nothing. The sum of two sparse gradients has all
    their rows in order; the sum of a sparse and a dense gradient is dense.
    """
    share = arrays.map_values(lambda v: v / np.asarray(iter_size, v.dtype), gradient)
    if total is None or share is None:
        return total if share is None else share
    if isinstance(total, Rows) and isinstance(share, Rows):
        indices = np.concatenate([total.indices, share.indices])
        values = np.concatenate([total.values, share.values])
        return Rows(indices, values, total.dense_shape or share.dense_shape)
    shape = (share if isinstance(total, Rows) else total).shape  # type: ignore[union-attr]
    with np.errstate(all="ignore"):
        return np.asarray(arrays.densify(total, shape) + arrays.densify(share, shape))
