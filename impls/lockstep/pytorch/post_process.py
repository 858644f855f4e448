"""What OpenSeq2Seq does with gradients before an update, and TensorBoard summaries.

``reduce_gradients`` averages them over ranks, ``post_process_gradients`` clips them or
scales them by LARC. ``get_regularization_loss`` adds up penalties.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep import errors
from lockstep.checks import number_of, require
from lockstep.larc import LARC, LarcPolicy, larc_policy
from lockstep.pytorch import foreach, shards
from lockstep.pytorch.clipping import clip_pairs, parameter_pairs
from lockstep.pytorch.foreach import moved, with_values
from lockstep.pytorch.gradients import (
    Pairs,
    check_gradient,
    is_alike,
    own_pairs,
    refuse_sharded,
)
from lockstep.pytorch.norms import accurate_norm, norm_of_each, sum_duplicates

OWNER = "post_process_gradients"

OPTIMIZER_SUMMARIES = [
    "learning_rate",
    "gradients",
    "gradient_norm",
    "global_gradient_norm",
    "variables",
    "variable_norm",
    "larc_summaries",
    "loss_scale",
]
"""The names of all summaries."""
DEFAULT_SUMMARIES = ["learning_rate", "global_gradient_norm", "loss_scale"]


class TensorBoardRecorder:
    """Write summaries with a ``torch.utils.tensorboard.SummaryWriter``.

    Args:
        writer: an object with the methods ``add_scalar`` and ``add_histogram``.
        global_step: the step under which summaries are written. None lets the writer
            choose.

    Example:
        >>> class Printer:
        ...     def add_scalar(self, tag, value, global_step):
        ...         print(tag, value.item(), global_step)
        >>> recorder = TensorBoardRecorder(Printer(), global_step=7)
        >>> recorder.scalar("global_gradient_norm", torch.tensor(2.5))
        global_gradient_norm 2.5 7
    """

    def __init__(self, writer: Any, global_step: int | None = None) -> None:
        self.writer = writer
        self.global_step = global_step

    def scalar(self, tag: str, value: Any) -> None:
        """Write a 0-d tensor or a number. The writer waits for its value."""
        self.writer.add_scalar(tag, value, self.global_step)

    def histogram(self, tag: str, values: Tensor) -> None:
        """Write the values of a tensor."""
        self.writer.add_histogram(tag, values, self.global_step)


class Summaries(NamedTuple):
    """The requested summaries and their recorder; without one none is computed."""

    names: frozenset[str]
    recorder: Any

    def __contains__(self, name: object) -> bool:
        return self.recorder is not None and name in self.names

    def norm(self, tag: str, pairs: Pairs) -> None:
        if "global_gradient_norm" in self:
            norm = accurate_norm([g for g, _ in pairs if g is not None])
            self.recorder.scalar(tag, norm)

    def pairs(self, pairs: Pairs, names: Sequence[str]) -> None:
        rows = zip(names, pairs, strict=True) if self.recorder is not None else ()
        for name, (gradient, parameter) in rows:
            if gradient is None:
                continue
            dense = sum_duplicates(gradient).values if gradient.is_sparse else gradient
            for kind, values in ("gradient", dense), ("variable", parameter.detach()):
                if f"{kind}s" in self:
                    finite = torch.where(values.isfinite(), values, 0)
                    self.recorder.histogram(tag_of(f"{kind}s", name), finite)
                if f"{kind}_norm" in self:
                    norm = norm_of_each([values])[0]
                    self.recorder.scalar(tag_of(f"{kind}_norm", name), norm)

    def ratios(
        self, policy: LarcPolicy, names: Sequence[str], raw: Tensor, rate: Tensor
    ) -> None:
        """Record LARC's ratios: [n] before the limit of 1; the rate is 0-d or [n]."""
        clips = policy.larc_mode == "clip"
        ratios = raw.clamp_max(1) if clips else raw
        kinds = {"larc_clip_on": (raw < 1).int()} if clips else {}
        kinds |= {"larc_grad_update": ratios, "larc_final_lr": rate * ratios}
        for kind, values in kinds.items():
            for name, value in zip(names, values.unbind(), strict=True):
                self.recorder.scalar(tag_of(kind, name), value)


def tag_of(kind: str, variable: str) -> str:
    """Return the tag KIND/VARIABLE, with ":" replaced by "_"."""
    return f"{kind}/{variable.replace(':', '_')}"


def requested(summaries: Iterable[str] | None, owner: str) -> frozenset[str]:
    """Return the names of requested summaries; None means the default ones."""
    names = DEFAULT_SUMMARIES if summaries is None else list(summaries)
    for name in names:
        if name not in OPTIMIZER_SUMMARIES:
            raise errors.unknown_name(f"{owner}: summaries", name, OPTIMIZER_SUMMARIES)
    return frozenset(names)


@torch.no_grad()
def post_process_gradients(
    grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
    summaries: Iterable[str] | None,
    lr: Tensor | float | Sequence[float],
    clip_gradients: float | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Any = None,
    names: Iterable[str] | None = None,
    in_place: bool = False,
) -> Pairs:
    """Clip gradients by their global norm if asked to, then scale them by LARC.

    LARC multiplies each gradient g of a parameter w by a ratio r, norms in float32:

        clip:  r = min(max(eta |w| / (lr (|g| + epsilon)), min_update), 1)
        scale: r = max(eta |w| / (|g| + epsilon), min_update)

    If both norms are finite, r is 1 where a norm is 0, and in mode "clip" where lr is
    0. Gradients of a scaled loss must be unscaled first, because the weights are not
    scaled.

    Args:
        grads_and_vars: iterable of (gradient or None, parameter); for LARC a gradient
            has its parameter's shape, dtype and device.
        summaries: names out of ``OPTIMIZER_SUMMARIES``; None for the default ones.
        lr: the learning rate of this step: a number or a 0-d tensor, or one rate for
            each pair if groups have different rates. Numbers must be finite and >= 0. A
            tensor is not checked.
        clip_gradients: as in :func:`clip_gradients_by_norm`; None does not clip.
        larc_params: ``larc_eta`` (required), ``larc_mode`` ("clip" or "scale"),
            ``min_update`` and ``epsilon`` (1e-7); None for no LARC.
        recorder: records the summaries by ``scalar(tag, value)`` and
            ``histogram(tag, values)``, as :class:`TensorBoardRecorder` does. Without
            a recorder no summary is computed.
        names: the names of the parameters, for the tags. The default is the position.
        in_place: overwrite the gradients if their dtype allows it. This needs less
            memory and is faster. Gradients that share memory, as
            ``torch.autograd.grad`` may return them, are copied in any case.

    Returns:
        The pairs with processed gradients. There is no host sync unless a gradient is
        sparse.

    Raises:
        OutOfRangeError, UnknownNameError: ValueErrors; a parameter or a summary that is
            missing, unknown, of another type or out of range.
        ShapeError: a ValueError; a gradient has another shape than its parameter.
        DtypeError: a TypeError; LARC with a gradient of another dtype.
        MalformedPairsError: a TypeError; not pairs of a gradient and a parameter.
        NoGradientsError: a ValueError; the list is empty.

    Origin: OpenSeq2Seq (8681d381ed40), ``post_process_gradients``; You, Gitman,
    Ginsburg: Large Batch Training of Convolutional Networks, 2017.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        >>> pairs = [(torch.tensor([12.0, 16.0]), weight)]
        >>> larc = {"larc_eta": 0.015625}
        >>> processed = post_process_gradients(pairs, [], 0.125, None, larc)
        >>> processed[0][0].tolist()  # r = 0.015625 * 5 / (0.125 * 20) = 0.03125
        [0.375, 0.5]
    """
    asked = Summaries(requested(summaries, OWNER), recorder)
    policy = None if larc_params is None else larc_policy(larc_params)
    pairs = own_pairs(parameter_pairs(grads_and_vars, OWNER), in_place)
    if names is None:
        names = [f"parameter_{k}" for k in range(len(pairs))]
    return post_process(pairs, asked, list(names), lr, clip_gradients, policy, in_place)


@torch.no_grad()
def post_process(
    pairs: Pairs,
    asked: Summaries,
    names: Sequence[str],
    lr: Tensor | float | Sequence[float],
    clip_gradients: float | None,
    policy: LarcPolicy | None,
    in_place: bool,
    total: Tensor | None = None,
) -> Pairs:
    """Process checked pairs, maybe in place; ``total``: the global norm, if known."""
    rate = None if policy is None else larc_rate(lr, pairs)
    asked.norm("global_gradient_norm", pairs)
    if clip_gradients is not None:
        pairs = clip_pairs(pairs, clip_gradients, in_place, total)
    asked.pairs(pairs, names)
    if clip_gradients is not None:
        asked.norm("global_clipped_gradient_norm", pairs)
    if rate is None or all([gradient is None for gradient, _ in pairs]):
        return pairs
    for position, (gradient, parameter) in enumerate(pairs):
        if gradient is not None and not is_alike(gradient, parameter):
            check_gradient(gradient, parameter, f"pair {position}", LARC)
    raw = larc_ratios(policy, pairs, rate)
    if "larc_summaries" in asked:
        both = zip(names, pairs, strict=True)
        present = [name for name, (gradient, _) in both if gradient is not None]
        asked.ratios(policy, present, raw, rate)
    ratios = raw.clamp_max(1) if policy.larc_mode == "clip" else raw
    return scale_by_ratios(pairs, ratios, in_place)


def larc_rate(lr: Tensor | float | Sequence[float], pairs: Pairs) -> Tensor:
    """Return the learning rate in float32: 0-d, or one for each gradient: [n]."""
    device, remedy = pairs[0][1].device, "pass the learning rate of this step"
    if isinstance(lr, Tensor):
        rates = lr.detach().float()
    else:
        is_list = isinstance(lr, list | tuple)
        for rate in lr if is_list else [lr]:
            fine = 0 <= number_of(rate) < math.inf
            require(LARC, "lr", rate, fine, "a finite number >= 0", remedy)
        if not is_list:
            return torch.full((), float(lr), dtype=torch.float32, device=device)
        rates = torch.tensor(lr, dtype=torch.float32)
    fits = rates.shape in ((), (len(pairs),))
    expected = "a number, or one for each pair"
    require(LARC, "lr", list(rates.shape), fits, expected, remedy)
    positions = [k for k, (gradient, _) in enumerate(pairs) if gradient is not None]
    if rates.dim() and len(positions) < len(pairs):
        # Not by an index tensor, because copying one to a GPU would wait.
        rates = torch.stack([rates[k] for k in positions]) if positions else rates[:0]
    return moved(rates, device)


def larc_ratios(policy: LarcPolicy, pairs: Pairs, rate: Tensor) -> Tensor:
    """Return the ratios of present gradients before the limit of 1: [n], float32."""
    gradients = [gradient for gradient, _ in pairs if gradient is not None]
    parameters = [parameter for gradient, parameter in pairs if gradient is not None]
    weight, gradient = norm_of_each([*parameters, *gradients]).tensor_split(2)
    divisor, is_still = gradient + policy.epsilon, (weight == 0) | (gradient == 0)
    if policy.larc_mode == "clip":
        divisor, is_still = rate * divisor, is_still | (rate == 0)
    raw = (policy.larc_eta * weight / divisor).clamp_min(policy.min_update)
    is_known = (weight + gradient).isfinite()
    return torch.where(is_still & is_known, 1.0, raw)


def scale_by_ratios(pairs: Pairs, ratios: Tensor, in_place: bool) -> Pairs:
    """Return the pairs with each gradient times its ratio, rounded to its dtype."""
    gradients = [gradient for gradient, _ in pairs if gradient is not None]
    parts = shards.parts_of(gradients)
    values = [g._values() if g.is_sparse else g for g in parts]

    factors: list[Any] = [None] * len(values)
    for positions in foreach.alike(values):
        like, cast = values[positions[0]], ratios
        if like.itemsize < 4:  # It would round a large ratio to infinity.
            cast = ratios.clamp(max=torch.finfo(like.dtype).max)
        cast = moved(cast.to(like.dtype), like.device).unbind()
        for k in positions:
            factors[k] = cast[k]
    if in_place:
        foreach.multiply_in_place(values, factors)
        return pairs
    products = foreach.multiply(values, factors)
    rows = list(map(with_values, parts, products))
    results = iter(shards.laid_out(gradients, rows))
    return [(None if g is None else next(results), p) for g, p in pairs]


class GroupReduction:
    """Average over the ranks of a group, with one collective per dtype and device.

    Args:
        group: a process group. None stands for the group of all ranks.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"

    @property
    def size(self) -> int:
        """The number of ranks."""
        return int(dist.get_world_size(self.group))

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """Return, for each flag, whether any rank has set it; wait for all ranks."""
        raised = torch.tensor(flags, dtype=torch.int32, device=self.device)
        dist.all_reduce(raised, dist.ReduceOp.MAX, group=self.group)
        return [bool(flag) for flag in raised.tolist()]

    def all_reduce(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return each tensor's mean, divided before the sum, which might overflow."""
        means: dict[int, Tensor] = {}
        for positions in foreach.alike(tensors):
            part = [tensors[k] for k in positions]
            flat = torch.cat([tensor.reshape(-1) for tensor in part])
            flat.div_(self.size)
            dist.all_reduce(flat, group=self.group)
            pieces = torch._utils._unflatten_dense_tensors(flat, part)
            means.update(zip(positions, pieces, strict=True))
        return [means[k] for k in range(len(tensors))]


@torch.no_grad()
def reduce_gradients(
    grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
    on_horovod: bool,
    model: object = None,
    reduction: Any = None,
) -> Pairs:
    """Return each gradient's mean over the ranks.

    g = sum over ranks of (g / ranks). A gradient that is absent on some ranks counts as
    zeros there. A gradient that is absent on all ranks stays absent; the ranks find
    this out in a small collective first. A sparse gradient becomes dense.

    Args:
        grads_and_vars: iterable of (gradient or None, parameter), the same parameters
            in the same order on every rank.
        on_horovod: must be True; the original raises otherwise.
        model: as in OpenSeq2Seq; without effect.
        reduction: the object that averages, with the attributes ``size``, ``any`` and
            ``all_reduce`` of :class:`GroupReduction`; all ranks call it in the same
            order. None averages over all ranks of ``torch.distributed``; if it is not
            initialized, this rank is the only one.

    Returns:
        The pairs, with averaged gradients; unchanged for a single rank.

    Raises:
        NotReducedError: a NotImplementedError; ``on_horovod`` is False.
        UnsupportedError: a ValueError; the parameters are split over ranks, or the
            reduction returned another number of means.
        MalformedPairsError, NoGradientsError: not pairs, or an empty list.

    Origin: OpenSeq2Seq (8681d381ed40), ``reduce_gradients``, on Horovod. The gradients
    of a model in ``DistributedDataParallel`` are averaged already.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> pairs = [(torch.ones(2), weight)]
        >>> reduce_gradients(pairs, on_horovod=True)[0][0].tolist()
        [1.0, 1.0]
    """
    if not on_horovod:
        raise errors.NotReducedError(
            "reduce_gradients: expected on_horovod=True, got False; gradients of "
            "several towers in one process were never reduced; add them."
        )
    pairs = parameter_pairs(grads_and_vars, "reduce_gradients")
    refuse_sharded("reduce_gradients", [parameter for _, parameter in pairs])
    if reduction is None and dist.is_available() and dist.is_initialized():
        reduction = GroupReduction()
    if reduction is None or reduction.size == 1:
        return pairs
    present = list(reduction.any([gradient is not None for gradient, _ in pairs]))
    chosen = [pair for pair, on_any in zip(pairs, present, strict=True) if on_any]
    # A rank without a gradient sends zeros.
    dense = [torch.zeros_like(p) if g is None else g.to_dense() for g, p in chosen]
    means = list(reduction.all_reduce(dense))
    left = {id(p): mean for (_, p), mean in zip(chosen, means, strict=True)}
    return [(left.get(id(parameter)), parameter) for _, parameter in pairs]


def get_regularization_loss(
    scope: str | None = None,
    name: str = "total_regularization_loss",
    losses: Mapping[str, Tensor | None] | Iterable[Tensor | None] | None = None,
) -> Tensor:
    """Return the sum of the losses in float32, each cast first: 0-d.

    The original reads the losses from a collection of its graph. torch has no such
    collection, so pass the losses, for example the penalties of a model's weights.

    Args:
        scope: a regular expression that must match at the start of a loss's name.
        name: as in TensorFlow; without effect.
        losses: a mapping name -> loss, 0-d, or an iterable of losses. Entries that are
            None are ignored: :func:`mp_regularizer_wrapper` returns None for a weight
            in half precision. The sum of no losses is 0.

    Raises:
        UnsupportedError: a ValueError; no ``losses``, or a scope without names.

    Origin: OpenSeq2Seq (8681d381ed40), ``get_regularization_loss``.

    Example:
        >>> penalties = {"encoder/w": torch.tensor(1.5), "decoder/w": torch.tensor(2.0)}
        >>> get_regularization_loss("encoder", losses=penalties).item()
        1.5
    """
    if losses is None or (scope is not None and not isinstance(losses, Mapping)):
        raise errors.UnsupportedError(
            "get_regularization_loss: expected losses={name: loss}, because only a "
            f"TensorFlow graph collects them, got {losses!r:.80}; without scope they "
            "need no names."
        )
    if isinstance(losses, Mapping):
        pattern = re.compile(scope or "")
        losses = [loss for key, loss in losses.items() if pattern.match(str(key))]
    present = [loss for loss in losses if loss is not None]
    # TensorFlow adds two to nine losses first, then sums of eight.
    first = (len(present) - 2) % 8 + 2
    starts = range(first, len(present), 8)
    groups = [present[:first], *(present[start : start + 8] for start in starts)]
    return _in_turn([_in_turn(group) for group in groups])


def _in_turn(losses: Sequence[Tensor]) -> Tensor:
    """Return the sum of 0-d losses in float32, in order, on the device of the last."""
    total = torch.zeros((), dtype=torch.float32, device="cpu")
    for loss in losses:
        total = total.to(loss.device) + loss.float()
    return total
