"""``TrainingStep``, what ``optimize_loss`` returns for PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from lockstep.interface import NO_STEP, StepReport
from lockstep.messages.step import arguments as checks
from lockstep.messages.step import optimize_loss as words
from lockstep.messages.step import refusals
from lockstep.messages.step.reduction import Reduction
from lockstep.messages.step.summaries import Recorder, Summaries
from lockstep.messages.step.training_step import (
    check_rate,
    joined,
    loss_and_extras,
    loss_of_others,
    report_accumulated,
    report_applied,
    shown,
)
from lockstep.pytorch.base.gradients import Pairs
from lockstep.pytorch.base.stack import base_of
from lockstep.pytorch.base.summaries import TensorBoardRecorder
from lockstep.pytorch.clipping import clip_factor
from lockstep.pytorch.gradients import gradients_for_step
from lockstep.pytorch.larc import larc_policy
from lockstep.pytorch.lr_scheduler import write
from lockstep.pytorch.scaling.automatic_scaler import AutomaticLossScaler
from lockstep.pytorch.scaling.skipping import SkippingWrapper
from lockstep.pytorch.step.micro_batches import add_share
from lockstep.pytorch.step.post_process import own_pairs, post_process
from lockstep.pytorch.step.reduction import reduce_gradients
from lockstep.pytorch.step.saved_state import check_saved
from lockstep.pytorch.tensors.finite import finite_flags
from lockstep.pytorch.tensors.norms import total_norm

__all__ = ["TrainingStep"]


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
        settings: words.Settings,
        loss: Callable[..., Tensor],
        learning_rate_decay_fn: Callable[[Tensor], Any],
    ) -> None:
        self.settings = settings
        params = settings.larc_params
        self.larc = None if params is None else larc_policy(params)
        self.loss = loss
        self.learning_rate_decay_fn = learning_rate_decay_fn
        self.global_step = torch.zeros((), dtype=torch.int64, device="cpu")
        self.learning_rate: Any = self.next_rate()
        self.optimizer: Any = None
        self.parameters: list[Tensor] = []
        self.names: list[str] = []
        self.weight_decay: Any = None
        self.scaler: AutomaticLossScaler | None = None
        self.summaries: frozenset[str] = frozenset()
        self.recorder: Recorder | None = None
        self.skip_update_ph: Any = None
        self.model: Any = None
        self.reduction: Reduction | None = None
        self.accumulators: list[Tensor | None] = []
        self.micro_step = 0
        self._absent: list[str] | None = None
        self._last_pairs: Pairs = []

    def __repr__(self) -> str:
        """Show optimizer, steps, rate and stages."""
        return shown(
            base_of(self.optimizer),
            len(self.parameters),
            int(self.global_step),
            self.learning_rate,
            self.pipeline,
        )

    @cached_property
    def pipeline(self) -> tuple[str, ...]:
        """The stages that a gradient goes through here, in their order."""
        return self.settings.pipeline(self.optimizer)

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
        # The last step's gradients are freed here, as ``zero_grad`` would do. If the
        # step freed them at its end, their memory might go back to the system, and
        # allocating it again takes as long as the backward pass.
        self._last_pairs = []
        self.learning_rate = self.next_rate()
        if self.updates_in_place():
            return self.update_in_place(inputs)
        value, pairs = self.differentiate(inputs)
        if self.settings.accumulates:
            waits = self.waits(skip_update)
            pairs = self.accumulate(pairs)
            if waits:
                self.keep(pairs)
                return value
        self.apply(pairs)
        self.clear()
        self._last_pairs = pairs
        return value

    def next_rate(self) -> Any:
        """Return the learning rate at the present ``global_step``."""
        rate = self.learning_rate_decay_fn(self.global_step.clone())
        if not self.settings.quirks.arguments_unchecked:
            check_rate(rate)
        return rate

    def differentiate(self, inputs: Sequence[Any]) -> tuple[Any, Pairs]:
        """Return the loss, and pairs of unscaled gradient and tensor to update."""
        answers: list[Any] = []
        loss = partial(self.evaluate, inputs, answers)
        pairs = gradients_for_step(self.optimizer, loss, self.parameters)
        return detached(*answers), pairs

    def evaluate(self, inputs: Sequence[Any], answers: list[Any]) -> Any:
        """Return the loss; write the loss and the other entries into ``answers``."""
        answer = self.loss(*inputs)
        if self.settings.quirks.arguments_unchecked:
            answers[:] = answer, None
        else:
            answers[:] = loss_and_extras(answer)
        return answers[0]

    def updates_in_place(self) -> bool:
        """Whether a fused optimizer unscales and clips while it updates.

        That saves two passes. No other stage may need the gradients before.
        """
        settings = self.settings
        others = settings.accumulates or settings.on_horovod or settings.strict
        if others or settings.larc_params is not None or self.recorder is not None:
            return False
        optimizer = self.optimizer
        if not isinstance(optimizer, SkippingWrapper):
            return False
        clips = settings.clip_gradients is not None
        return optimizer._divides_as_it_updates(clips)

    def update_in_place(self, inputs: Sequence[Any]) -> Any:
        """Train one step with the gradients in ``.grad``; return the loss."""
        answers: list[Any] = []
        loss = partial(self.evaluate, inputs, answers)
        limit = self.settings.clip_gradients
        clip = None if limit is None else partial(clip_factor, clip_norm=limit)
        optimizer, parameters = self.optimizer, self.parameters
        with optimizer._gradients_in_place(loss, parameters, clip):
            pairs = [(parameter.grad, parameter) for parameter in parameters]
            absent = self.absent(pairs)
            self.set_hyper_parameters()
            optimizer.step()
        self.global_step += optimizer.took_step()
        self._absent, self._last_pairs = absent, pairs
        return detached(*answers)

    def accumulate(self, pairs: Pairs) -> Pairs:
        """Return the sums with this micro-batch, in the order of ``pairs``.

        Every sum is a new tensor, because clipping writes into it. The sums are not
        stored yet, so a step that fails changes nothing.
        """
        if self.settings.quirks.optimize_loss_accumulated:
            self.check_accumulated(pairs)
        everything = zip(self.accumulators, pairs, strict=True)
        return [
            (add_share(total, gradient, self.settings.iter_size), variable)
            for total, (gradient, variable) in everything
        ]

    def keep(self, pairs: Pairs) -> None:
        """Store the sums and count the micro-batch."""
        self.accumulators = [total for total, _ in pairs]
        self.micro_step += 1

    def check_accumulated(self, pairs: Pairs) -> None:
        """Raise for an absent or sparse gradient, which the original cannot add."""
        for name, (gradient, _) in zip(self.names, pairs, strict=True):
            if gradient is None:
                raise refusals.ABSENT_ACCUMULATED.error(name=name)
            if gradient.is_sparse:
                raise refusals.SPARSE_ACCUMULATED.error(name=name)

    def waits(self, skip_update: Any) -> bool:
        """Whether this call only adds a micro-batch, without an update."""
        flag = self.skip_update_ph if skip_update is None else skip_update
        flag = flag() if callable(flag) else flag
        if not self.settings.quirks.arguments_unchecked:
            checks.check_flag("skip_update", flag, answered=True)
        if flag is None:
            return self.micro_step + 1 < self.settings.iter_size
        return bool(flag)

    def apply(self, pairs: Pairs) -> None:
        """Average, check and clip the gradients, then let the optimizer update."""
        settings = self.settings
        if settings.on_horovod:
            pairs = reduce_gradients(pairs, True, self.model, self.reduction)
            pairs = own_pairs(pairs, in_place=True)
        norm = self.clipped_norm(pairs)
        decides = "finite check" in self.pipeline
        finite = decides and norm is not None and math.isfinite(norm)
        stay_finite = finite and self.stay_finite(pairs)
        if settings.quirks.optimize_loss_order or finite or self.fits(pairs):
            pairs = self.post_process(pairs, norm)
        if stay_finite:
            self.optimizer._note_finite([g for g, _ in pairs if g is not None])
        absent = self.absent(pairs)
        self.set_hyper_parameters()
        self.optimizer.apply_gradients(pairs, self.global_step)
        self._absent = absent

    def absent(self, pairs: Pairs) -> list[str]:
        """Return the names of parameters without a gradient; raise if all have none."""
        everything = zip(self.names, pairs, strict=True)
        names = [name for name, (gradient, _) in everything if gradient is None]
        if len(names) == len(pairs):
            raise loss_of_others(self.names)
        return names

    def clipped_norm(self, pairs: Pairs) -> Tensor | None:
        """Return the global norm for clipping, or None if it is not needed here."""
        settings = self.settings
        if settings.clip_gradients is None or settings.quirks.clip_duplicates:
            return None
        return total_norm([g for g, _ in pairs if g is not None])

    def fits(self, pairs: Pairs) -> bool:
        """Whether the gradients are finite; True if they are not checked here.

        They are checked before clipping, because one non-finite gradient makes the
        global norm, and with it every clipped gradient, non-finite. LARC scales each
        gradient by itself.
        """
        clips = self.settings.clip_gradients is not None
        if not (clips or self.recorder) or "finite check" not in self.pipeline:
            return True
        return all(finite_flags([g for g, _ in pairs if g is not None]))

    def stay_finite(self, pairs: Pairs) -> bool:
        """Whether finite gradients certainly stay finite when they are clipped.

        Clipping multiplies by at most 1, so dense float32 gradients stay finite. For
        other dtypes this is not certain, because they are rounded, and for sparse
        gradients neither, because their rows are summed. False if the optimizer makes
        no finite check.
        """
        if not isinstance(self.optimizer, SkippingWrapper):
            return False
        gradients = [g for g, _ in pairs if g is not None]
        return all([g.dtype == torch.float32 and not g.is_sparse for g in gradients])

    def post_process(self, pairs: Pairs, norm: Tensor | None) -> Pairs:
        """Clip the gradients or scale them by LARC, and record the summaries."""
        settings, asked = self.settings, Summaries(self.summaries, self.recorder)
        if self.recorder is not None:
            self.record_numbers(asked)
        return post_process(
            pairs,
            asked,
            self.names,
            self.learning_rate,
            settings.clip_gradients,
            self.larc,
            True,
            norm,
        )

    def record_numbers(self, asked: Summaries) -> None:
        """Record the rate and the loss scale of this step."""
        if isinstance(self.recorder, TensorBoardRecorder):
            self.recorder.global_step = int(self.global_step) + 1
        asked.scalar("learning_rate", "learning_rate", self.learning_rate)
        scaled = self.settings.summarized_scale(self.optimizer, self.scaler)
        if scaled is not None:
            asked.scalar("loss_scale", "loss_scale", scaled.loss_scale)

    def set_hyper_parameters(self) -> None:
        """Write the learning rate of this step, and AdamW's decay, into the groups."""
        rate = float(self.learning_rate)
        for group in self.optimizer.param_groups:
            write(group, rate)
            if self.weight_decay is not None:
                group["weight_decay"] = float(self.decay())

    def decay(self) -> Any:
        """Return AdamW's decay of this step: rate x ``weight_decay``."""
        decay = self.weight_decay
        return self.learning_rate * (decay() if callable(decay) else decay)

    def clear(self) -> None:
        """Empty the sums."""
        self.micro_step = 0
        self.accumulators = [None] * len(self.parameters)

    @property
    def last_step(self) -> StepReport:
        """The report of the last call; ``NO_STEP`` before the first call."""
        if self.micro_step:
            size = self.settings.iter_size
            return report_accumulated(self.micro_step, size)
        if self._absent is None:
            return NO_STEP
        inner = getattr(self.optimizer, "last_step", None)
        return report_applied(inner, self.names, self._absent)

    def summaries_to(self, writer: Any) -> None:
        """Write the summaries of each applied step, numbered by ``global_step``.

        Args:
            writer: a ``torch.utils.tensorboard.SummaryWriter``, or an object with its
                methods ``add_scalar`` and ``add_histogram``. None stops the recording.
        """
        self.recorder = None if writer is None else TensorBoardRecorder(writer)

    def state_dict(self) -> dict[str, Any]:
        """Return all state that the next steps depend on, except the parameters."""
        sums = [
            total if total is None else total.clone() for total in self.accumulators
        ]
        numbers = {
            "global_step": int(self.global_step),
            "micro_step": self.micro_step,
            "iter_size": self.settings.iter_size,
        }
        return {
            "optimizer": self.optimizer.state_dict(),
            **numbers,
            "accumulators": sums,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what ``state_dict`` returned. Later steps are equal bit for bit.

        Raises:
            ValueError: the state was not saved by such a step. Nothing is loaded then.
        """
        sums = check_saved(self, state_dict)
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.global_step.fill_(state_dict["global_step"])
        self.micro_step = state_dict["micro_step"]
        self.accumulators = sums
        self._absent = None


def detached(loss: Tensor, extras: tuple[Any, ...] | None) -> Any:
    """Return the loss, or the loss and the other entries, without their graph."""
    if extras is not None:
        extras = tree_map_only(Tensor, Tensor.detach, extras)
    return joined(loss.detach(), extras)
