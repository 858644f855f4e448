"""``optimize_loss`` of OpenSeq2Seq: the whole training step in one call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from lockstep import errors
from lockstep.checks import check_norm_limit, dtype_name, number_of, require
from lockstep.interface import NO_STEP, StepReport
from lockstep.larc import LarcPolicy, larc_policy
from lockstep.pipeline import in_order, stages_of
from lockstep.pytorch import foreach, optimizers, post_process
from lockstep.pytorch.clipping import clip_factor
from lockstep.pytorch.gradients import (
    Pairs,
    gradients_for_step,
    named_parameters,
    own_pairs,
    refuse_sharded,
)
from lockstep.pytorch.loss_scales import AutomaticLossScaler
from lockstep.pytorch.loss_scaling import ScalingWrapper
from lockstep.pytorch.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.pytorch.norms import finite_flags, total_norm
from lockstep.pytorch.wrapper import OptimizerWrapper

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Optimizer]] = {
    "Adagrad": optimizers.AdagradOptimizer,
    "Adam": optimizers.AdamOptimizer,
    "Ftrl": optimizers.FtrlOptimizer,
    "Momentum": optimizers.MomentumOptimizer,
    "RMSProp": optimizers.RMSPropOptimizer,
    "SGD": optimizers.GradientDescentOptimizer,
    "AdamW": optimizers.AdamWOptimizer,
}
"""The names that ``optimize_loss`` takes, and their classes: the rules of TF1."""

REQUIRED = {
    "AdamW": ("weight_decay", errors.MissingDecayError),
    "Momentum": ("momentum", errors.MissingArgumentError),
}
CLIP_AND_LARC = "optimize_loss: expected clipping or LARC, got both; leave one out."
Named = list[tuple[str | None, Tensor]]


def optimize_loss(
    loss: Callable[..., Tensor | tuple[Any, ...]],
    optimizer: str | Callable[..., Optimizer] | Optimizer,
    optimizer_params: Mapping[str, Any] | None,
    learning_rate_decay_fn: Callable[[Tensor], Any] | float,
    var_list: Iterable[Tensor | tuple[str, Tensor]] | None = None,
    dtype: Any = torch.float32,
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
    reduction: Any = None,
) -> TrainingStep:
    """Return an object that takes one step of training each time it is called.

    rate = learning_rate_decay_fn(steps applied so far), written into the optimizer's
    groups; g = gradients of the loss, times 1 / scale; with ``iter_size`` > 1, g = sum
    of g / iter_size over the micro-batches. g is averaged over the ranks. With "mixed",
    the step is skipped if g is not finite. g is clipped or scaled by LARC. Then the
    optimizer updates the parameters, and the step is counted.

    Args:
        loss: a function that returns the loss, a 0-d tensor. Each call of the step
            passes its arguments on to it. If it returns a tuple whose first entry is
            the loss, the step returns such a tuple too, with all tensors detached.
            Calls of ``torch.utils.checkpoint`` in it need ``use_reentrant=False``.
        optimizer: a name of ``OPTIMIZER_CLS_NAMES``, a class or function that makes an
            optimizer, or an optimizer. A class or function is called with a list of
            the parameters, ``learning_rate=`` (or ``lr=``, if it takes that) and
            ``optimizer_params``. An optimizer needs one rate in all its groups and no
            ``optimizer_params``. If ``model`` is passed without ``var_list``, its
            groups must contain the trainable parameters of ``model``.
        optimizer_params: the optimizer's arguments by name. "AdamW" by name decays by
            rate x ``weight_decay``.
        learning_rate_decay_fn: a function that returns the rate, or a number, the rate
            of every step. Each step calls it with the number of steps applied so far,
            int64 and 0-d; see ``lr_policies``.
        var_list: the parameters to train, with or without their names. None takes the
            parameters of ``model`` that require a gradient now, or those of the given
            optimizer. List a parameter that is frozen now but trained later.
        dtype: float32, float16 or "mixed": half-precision parameters with float32
            masters, and the loss scaled.
        clip_gradients: the largest global norm, > 0. Not together with LARC.
        summaries: names of ``OPTIMIZER_SUMMARIES``. None stands for ``learning_rate``,
            ``global_gradient_norm`` and ``loss_scale``. They are computed once
            ``summaries_to`` has named a writer.
        larc_params: ``larc_eta``, ``larc_mode``, ``min_update``, ``epsilon``.
        loss_scaling: with "mixed": a number, "Backoff" or "LogMax", or a scale object.
        loss_scaling_params: parameters of the named scaler; refused without one.
        on_horovod: average over the ranks of ``torch.distributed``, if there are any.
        iter_size: micro-batches in a step. A gradient that is absent in one of them
            counts as zeros there.
        skip_update_ph: whether to accumulate without an update: a bool, a 0-d tensor,
            or a function that is called in each step. None: each ``iter_size``-th call
            updates.
        model: a module whose parameters are trained if ``var_list`` is None. It must
            not be wrapped in ``DistributedDataParallel``.
        reduction: the object that averages gradients. None uses ``torch.distributed``.

    Raises:
        ValueError: an unknown name (the nearest is given), a value out of its range,
            nothing to train.
        TypeError: an argument that the optimizer needs or does not have; a
            ``learning_rate_decay_fn`` that cannot be called with the steps.
        KeyError: "AdamW" without ``weight_decay``.
        RuntimeError: ``loss`` is no function.
        AttributeError and ValueError in one: clipping and LARC together.

    State: ``state_dict`` of the step contains the optimizer's state, the counters and
    the accumulated gradients.

    Origin: OpenSeq2Seq (8681d381ed40), ``optimizers/optimizers.py``.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        >>> loss = lambda: weight.square().sum() / 2
        >>> step = optimize_loss(loss, "SGD", {}, 0.5, [weight], clip_gradients=2.5)
        >>> step().item()
        12.5
        >>> weight.tolist(), step.pipeline
        ([2.25, 3.0], ('norm', 'clip', 'update'))
    """
    if not callable(loss):
        raise errors.LossNotCallableError(
            f"optimize_loss: loss: expected a function, got {loss!r:.80}; each step "
            "calls it: pass lambda: ..., or a function of a batch."
        )
    scaling = loss_scaling, loss_scaling_params
    _check_settings(dtype, clip_gradients, larc_params, iter_size, *scaling)
    step = TrainingStep(loss, learning_rate_decay_fn)
    step.clip_gradients, step.iter_size = clip_gradients, iter_size
    step.larc = None if larc_params is None else larc_policy(larc_params)
    step.summaries = post_process.requested(summaries, "optimize_loss")
    step.on_horovod, step.reduction = bool(on_horovod), reduction
    step.skip_update_ph = skip_update_ph
    named = _trained(var_list, model, optimizer)
    base = _make_optimizer(step, named, optimizer, optimizer_params)
    known = named_parameters(base)
    step.parameters = [parameter for _, parameter in named]
    refuse_sharded("optimize_loss", step.parameters)
    _check_optimizer(step, base, known, None if var_list is not None else model)
    step.names = [name or known[parameter] for name, parameter in named]
    if dtype == "mixed":
        if isinstance(loss_scaling, str):
            step.scaler = AutomaticLossScaler(loss_scaling, loss_scaling_params)
        base = MixedPrecisionOptimizerWrapper(base, step.scaler or loss_scaling)
    ours = hasattr(type(base), "took_step")
    step.optimizer = base if ours else OptimizerWrapper(base)
    step.clear()
    return step


def _check_settings(
    dtype: Any,
    clip_gradients: Any,
    larc_params: Any,
    iter_size: Any,
    loss_scaling: Any,
    scaling_params: Any,
) -> None:
    """Raise for arguments that cannot be meant, or that would have no effect."""
    if clip_gradients is not None and larc_params is not None:
        raise errors.ClipAndLarcError(CLIP_AND_LARC)
    if dtype_name(dtype) not in ("float32", "float16", "mixed"):
        raise errors.UnknownNameError(
            f"optimize_loss: dtype: expected float32, float16 or 'mixed', got {dtype}; "
            "gradients keep their parameters' dtypes, and 'mixed' trains bfloat16 "
            "through float32 masters."
        )
    if clip_gradients is not None:
        check_norm_limit("optimize_loss", "clip_gradients", clip_gradients)
    is_count = type(iter_size) is int and iter_size >= 1
    require("optimize_loss", "iter_size", iter_size, is_count, "an int >= 1")
    scales = dtype == "mixed" or number_of(loss_scaling) == 1
    if not scales or (scaling_params and not isinstance(loss_scaling, str)):
        raise errors.UnsupportedError(
            "optimize_loss: expected dtype='mixed' beside loss_scaling, and a scaler's "
            f"name beside loss_scaling_params, got dtype={dtype!r}, loss_scaling="
            f"{loss_scaling!r} and {scaling_params!r}; leave out what has no effect."
        )


def _trained(var_list: Any, model: Any, optimizer: Any) -> Named:
    """Return the parameters to train, and their names if they have names."""
    if isinstance(model, DistributedDataParallel):
        raise errors.UnsupportedError(
            "optimize_loss: model: expected the model itself, because no .grad is used "
            "and nothing would be averaged, got DistributedDataParallel; pass "
            "model.module and on_horovod=True, and let the loss call model.module."
        )
    of_model = dict(model.named_parameters()) if isinstance(model, nn.Module) else {}
    single = isinstance(var_list, Tensor)
    if var_list is None and isinstance(optimizer, Optimizer):
        var_list = named_parameters(optimizer)
    elif var_list is None:
        var_list = [(n, p) for n, p in of_model.items() if p.requires_grad]
    entries = [e if isinstance(e, tuple) else (None, e) for e in var_list]
    if single or not all(isinstance(entry[-1], Tensor) for entry in entries):
        raise errors.VarListError(
            "optimize_loss: var_list: expected a list of parameters, or of pairs "
            f"(name, parameter), got {var_list!r:.80}; list what is to be trained."
        )
    names = {parameter: name for name, parameter in of_model.items()}
    return [(name or names.get(parameter), parameter) for name, parameter in entries]


def _make_optimizer(
    step: TrainingStep,
    named: Named,
    optimizer: Any,
    optimizer_params: Mapping[str, Any] | None,
) -> Optimizer:
    """Return the optimizer, or make one from its name or class."""
    made, arguments = optimizer, dict(optimizer_params or {})
    if isinstance(made, Optimizer) and not arguments:
        return made
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZER_CLS_NAMES:
            known = OPTIMIZER_CLS_NAMES
            raise errors.unknown_name("optimize_loss: optimizer", optimizer, known)
        made = OPTIMIZER_CLS_NAMES[optimizer]
        needed, error = REQUIRED.get(optimizer, (None, Exception))
        if needed and needed not in arguments:
            raise error(
                f"optimize_loss: optimizer_params of {optimizer}: expected {needed!r}, "
                f"got {arguments}; add it."
            )
        if optimizer == "AdamW":
            step.weight_decay = arguments["weight_decay"]
            arguments["weight_decay"] = float(step.learning_rate * step.weight_decay)
    if callable(made):
        takes_lr = "lr" in inspect.signature(made).parameters
        rate = {"lr" if takes_lr else "learning_rate": float(step.learning_rate)}
        made = made([parameter for _, parameter in named], **rate, **arguments)
    if made is optimizer or not isinstance(made, Optimizer):
        raise errors.NotAnOptimizerError(
            "optimize_loss: optimizer: expected a name of OPTIMIZER_CLS_NAMES, a class "
            "or function that makes a torch.optim.Optimizer, or one without "
            f"optimizer_params, got {made!r:.80}; pass its class."
        )
    # The names are only added now, because a function may sort parameters into groups.
    names = {parameter: name for name, parameter in named if name is not None}
    groups = made.param_groups
    if all(parameter in names for group in groups for parameter in group["params"]):
        for group in groups:
            group["param_names"] = [names[parameter] for parameter in group["params"]]
    return made


def _check_optimizer(
    step: TrainingStep, optimizer: Optimizer, known: Mapping[Tensor, str], model: Any
) -> None:
    """Raise for an optimizer that would train something else than meant."""
    if step.larc is not None and "clip" in stages_of(optimizer):
        raise errors.ClipAndLarcError(CLIP_AND_LARC)
    rates = sorted({float(group["lr"]) for group in optimizer.param_groups})
    if len(rates) > 1:
        raise errors.UnsupportedError(
            f"optimize_loss: optimizer: expected one rate in all groups, got {rates}; "
            "each step sets the rate of every group, so give them the same one."
        )
    missing = [p for p in step.parameters if p not in known]
    if isinstance(model, nn.Module):
        of_model = {p: p.requires_grad for p in model.parameters()}
        missing += [p for p, trains in of_model.items() if trains and p not in known]
        missing += [p for p in known if p not in of_model]
    if missing:
        raise errors.UnsupportedError(
            "optimize_loss: optimizer: expected an optimizer of the trained "
            f"parameters, got one that lacks or adds {[list(p.shape) for p in missing]}"
            "; pass var_list to train a part, or leave model out."
        )


class TrainingStep:
    """The training step that ``optimize_loss`` returns. Call it to train one step.

    ``step(*inputs)`` calls the loss function with these arguments and returns its
    value. If the function returns a tuple, so does the step, and the loss comes first.
    With ``iter_size`` > 1 each call adds its gradients to a sum, and each
    ``iter_size``-th call updates the parameters. ``skip_update`` overrides that, in the
    call or at construction. Each ``.grad`` is what it was before, so you need not clear
    it. Hooks that see a gradient see the one of the scaled loss.

    ``copy.deepcopy`` copies a loss that is a method of the model. A plain function
    still uses the parameters of the original, so set ``loss`` of the copy.

    Attributes:
        optimizer: the optimizer. With "mixed" it is the wrapper that has the masters.
        parameters: the parameters to train; ``names`` are their names.
        global_step: the number of applied steps, a 0-d int64 tensor on the CPU.
        learning_rate: the learning rate of the last call.
        scaler: the automatic loss scaler, or None.
        accumulators: the accumulated gradient of each parameter, None if nothing was
            added.
        micro_step: the number of micro-batches in ``accumulators``.
        recorder: the object that records the summaries of an applied step, or None.
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        learning_rate_decay_fn: Callable[[Tensor], Any] | float,
    ) -> None:
        self.loss = loss
        self.learning_rate_decay_fn = learning_rate_decay_fn
        self.global_step = torch.zeros((), dtype=torch.int64, device="cpu")
        self.learning_rate: Any = self.next_rate()
        self.optimizer: Any = None
        self.parameters: list[Tensor] = []
        self.names: list[str] = []
        self.weight_decay: Any = None
        self.scaler: AutomaticLossScaler | None = None
        self.clip_gradients: float | None = None
        self.larc: LarcPolicy | None = None
        self.on_horovod = False
        self.reduction: Any = None
        self.iter_size = 1
        self.skip_update_ph: Any = None
        self.summaries: frozenset[str] = frozenset()
        self.recorder: Any = None
        self.accumulators: list[Tensor | None] = []
        self.micro_step = 0
        self._absent: list[str] | None = None
        self._last_pairs: Pairs = []

    @cached_property
    def pipeline(self) -> tuple[str, ...]:
        """The stages that a gradient goes through here, in their order."""
        own = ["accumulate"] * (self.iter_size > 1) + ["reduce"] * self.on_horovod
        own += ["norm", "clip"] * (self.clip_gradients is not None)
        own += ["larc"] * (self.larc is not None) + ["update"]
        return in_order([*stages_of(self.optimizer), *own])

    def __call__(self, *inputs: Any, skip_update: Any = None) -> Any:
        """Compute the loss and take a step, or add a micro-batch.

        Args:
            inputs: the arguments of the loss function.
            skip_update: whether to accumulate without an update. None: as chosen at
                construction. It has no effect unless ``iter_size`` > 1.

        Returns:
            The loss before the update, detached. If the loss function returns a tuple,
            a tuple of the loss and the other entries.
        """
        # Freed here and not at the end of the last step, because their memory might
        # go back to the system, and the next step would ask for it again.
        self._last_pairs = []
        self.learning_rate = self.next_rate()
        answer: Any = None
        waits = False

        def loss() -> Any:
            nonlocal answer
            answer = self.loss(*inputs)
            return answer[0] if isinstance(answer, tuple) else answer

        if self._updates_in_place():
            self._update_in_place(loss)
        else:
            pairs = gradients_for_step(self.optimizer, loss, self.parameters)
            if self.iter_size > 1:
                waits = self._waits(skip_update)
                # New tensors, so a step that fails changes no sum.
                rows, count = zip(self.accumulators, pairs, strict=True), self.iter_size
                pairs = [(_add_share(total, g, count), p) for total, (g, p) in rows]
            if waits:
                self.accumulators = [total for total, _ in pairs]
                self.micro_step += 1
            else:
                self._update(pairs)
                self.clear()
                self._last_pairs = pairs
        if isinstance(answer, tuple):
            return tree_map_only(Tensor, Tensor.detach, answer)
        return answer.detach()

    def next_rate(self) -> Any:
        """Return the learning rate at the present ``global_step``."""
        rate = self.learning_rate_decay_fn
        rate = rate(self.global_step.clone()) if callable(rate) else rate
        if not 0 <= number_of(rate) < math.inf:
            raise errors.RateFunctionError(
                "optimize_loss: learning_rate_decay_fn: expected a finite rate >= 0, "
                f"or a function of the step that returns one, got {rate!r}; write "
                "lambda step: 0.1, or functools.partial(policy, ...)."
            )
        return rate

    def clear(self) -> None:
        """Empty the sums."""
        self.micro_step = 0
        self.accumulators = [None] * len(self.parameters)

    def _updates_in_place(self) -> bool:
        """Whether a fused optimizer unscales and clips as it updates, in one pass."""
        others = self.iter_size > 1 or self.on_horovod or self.larc is not None
        if others or self.recorder is not None:
            return False
        clips, optimizer = self.clip_gradients is not None, self.optimizer
        is_scaled = isinstance(optimizer, ScalingWrapper)
        return is_scaled and optimizer._divides_as_it_updates(clips)

    def _update_in_place(self, loss: Callable[[], Any]) -> None:
        limit, optimizer = self.clip_gradients, self.optimizer
        clip = None if limit is None else partial(clip_factor, clip_norm=limit)
        with optimizer._gradients_in_place(loss, self.parameters, clip):
            pairs = [(parameter.grad, parameter) for parameter in self.parameters]
            absent = self._names_of_absent(pairs)
            self._write_rate()
            optimizer.step()
        self.global_step += optimizer.took_step()
        self._absent, self._last_pairs = absent, pairs

    def _waits(self, skip_update: Any) -> bool:
        """Whether this call only adds a micro-batch, without an update."""
        flag = self.skip_update_ph if skip_update is None else skip_update
        flag = flag() if callable(flag) else flag
        if flag is None:
            return self.micro_step + 1 < self.iter_size
        is_tensor = isinstance(flag, Tensor) and flag.dtype == torch.bool
        fine = isinstance(flag, bool) or (is_tensor and not flag.dim())
        expected = "a bool, a 0-d bool, or a function that returns one"
        require("optimize_loss", "skip_update", flag, fine, expected)
        return bool(flag)

    def _update(self, pairs: Pairs) -> None:
        """Average, check and clip the gradients, then let the optimizer update."""
        if self.on_horovod:
            pairs = post_process.reduce_gradients(pairs, True, None, self.reduction)
            pairs = own_pairs(pairs, in_place=True)
        present = [gradient for gradient, _ in pairs if gradient is not None]
        clips, checks = self.clip_gradients is not None, "finite check" in self.pipeline
        norm = total_norm(present) if clips else None
        finite = checks and norm is not None and math.isfinite(norm)
        # Gradients are checked before they are clipped, because one that is not finite
        # makes the norm, and with it every clipped gradient, non-finite.
        unsure = checks and not finite and (clips or self.recorder is not None)
        if not unsure or all(finite_flags(present)):
            pairs = self._post_process(pairs, norm)
        # Clipping multiplies by at most 1, so dense float32 gradients stay finite.
        # Others are rounded, or rows are summed.
        absent = self._names_of_absent(pairs)
        self._write_rate()
        if finite and isinstance(self.optimizer, ScalingWrapper):
            if all([g.dtype == torch.float32 and not g.is_sparse for g in present]):
                self.optimizer._contents.known_finite = True
        self.optimizer.apply_gradients(pairs, self.global_step)
        self._absent = absent

    def _post_process(self, pairs: Pairs, norm: Tensor | None) -> Pairs:
        """Clip the gradients or scale them by LARC, and record the summaries."""
        asked = post_process.Summaries(self.summaries, self.recorder)
        if isinstance(self.recorder, post_process.TensorBoardRecorder):
            self.recorder.global_step = int(self.global_step) + 1
        if "learning_rate" in asked:
            self.recorder.scalar("learning_rate", self.learning_rate)
        if "loss_scale" in asked and "unscale" in self.pipeline:
            self.recorder.scalar("loss_scale", self.optimizer.loss_scale)
        rate, limit = self.learning_rate, self.clip_gradients
        return post_process.post_process(
            pairs, asked, self.names, rate, limit, self.larc, True, norm
        )

    def _names_of_absent(self, pairs: Pairs) -> list[str]:
        """Return the names of parameters without a gradient; raise if all have none."""
        both = zip(self.names, pairs, strict=True)
        absent = [name for name, (gradient, _) in both if gradient is None]
        if len(absent) == len(pairs):
            raise errors.NoGradientsError(
                "optimize_loss: loss: expected a loss that depends on a parameter of "
                f"this step, got None as the gradient of all of {absent[:4]}; the loss "
                "of a deepcopy may still be that of the original model: set step.loss "
                "to one of the copied parameters."
            )
        return absent

    def _write_rate(self) -> None:
        """Write the learning rate of this step, and AdamW's decay, into the groups."""
        rate = float(self.learning_rate)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
            if self.weight_decay is not None:
                group["weight_decay"] = float(self.learning_rate * self.weight_decay)

    @property
    def last_step(self) -> StepReport:
        """The report of the last call; ``NO_STEP`` before the first call."""
        if self.micro_step:
            count = f"{self.micro_step} of {self.iter_size}"
            return StepReport(False, f"accumulated micro-batch {count}", ())
        if self._absent is None:
            return NO_STEP
        inner = getattr(self.optimizer, "last_step", None)
        if inner is not None:
            return inner
        count, absent = len(self.names), tuple(self._absent)
        reason = f"{count - len(absent)} of {count} variables updated"
        return StepReport(True, reason, absent)

    def summaries_to(self, writer: Any) -> None:
        """Write the summaries of each applied step, numbered by ``global_step``.

        Args:
            writer: a ``torch.utils.tensorboard.SummaryWriter``, or an object with its
                methods ``add_scalar`` and ``add_histogram``. None stops the recording.
        """
        self.recorder = (
            None if writer is None else post_process.TensorBoardRecorder(writer)
        )

    def state_dict(self) -> dict[str, Any]:
        """Return all state that the next steps depend on, except the parameters."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "global_step": int(self.global_step),
            "micro_step": self.micro_step,
            "iter_size": self.iter_size,
            "accumulators": [
                total if total is None else total.clone() for total in self.accumulators
            ],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what ``state_dict`` returned. Later steps are equal bit for bit.

        Raises:
            ValueError: the state was not saved by such a step. Nothing is loaded then.
        """
        keys = {"optimizer", "global_step", "micro_step", "iter_size", "accumulators"}
        if set(state_dict) != keys:
            raise _other_state(f"{state_dict!r:.80}")
        # A sum continues only with the same ``iter_size``, because its gradients were
        # divided by it. With a flag, it may have more micro-batches than ``iter_size``.
        micro_step, iter_size = state_dict["micro_step"], state_dict["iter_size"]
        if micro_step and (self.iter_size == 1 or iter_size != self.iter_size):
            raise _other_state(f"{micro_step} micro-batches with iter_size {iter_size}")
        sums = state_dict["accumulators"]
        shapes = [total if total is None else total.shape for total in sums]
        own = [p.shape for p in self.parameters]
        fit = [s in (None, shape) for s, shape in zip(shapes, own, strict=False)]
        if len(shapes) != len(own) or not all(fit):
            raise _other_state(f"sums of shapes {shapes}")
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.global_step.fill_(state_dict["global_step"])
        self.micro_step = micro_step
        self.accumulators = [
            None if total is None else total.to(parameter.device, copy=True)
            for total, parameter in zip(sums, self.parameters, strict=True)
        ]
        self._absent = None


def _other_state(got: str) -> errors.UnsupportedError:
    return errors.UnsupportedError(
        "optimize_loss: state: expected what state_dict() of the same step object "
        f"returned, got {got}; make the step object with the same arguments before "
        "loading."
    )


@torch.no_grad()
def _add_share(
    total: Tensor | None, gradient: Tensor | None, iter_size: int
) -> Tensor | None:
    """Return total + gradient / iter_size as a new tensor; None adds nothing."""
    if gradient is None:
        return None if total is None else total.clone()
    share = gradient / foreach.number_like(iter_size, gradient)
    if total is None:
        return share
    if share.is_sparse and total.is_sparse:
        # torch cannot add sparse float16 on the CPU. No rows are summed.
        indices = torch.cat([total._indices(), share._indices()], dim=1)
        values = torch.cat([total._values(), share._values()])
        shape = share.shape
        return torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)
    share, total = (t.to_dense() if t.is_sparse else t for t in (share, total))
    return share.add_(total)
