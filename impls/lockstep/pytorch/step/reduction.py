"""Average gradients over ranks, with ``torch.distributed`` or another engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.docstrings import documented
from lockstep.messages import pytorch as torch_messages
from lockstep.messages.step import reduction as words
from lockstep.messages.step import refusals
from lockstep.messages.step.reduction import Reduction
from lockstep.pytorch.base.gradients import Pairs
from lockstep.pytorch.clipping import parameter_pairs
from lockstep.pytorch.tensors import foreach, shards

__all__ = ["GroupReduction", "reduce_gradients"]


class GroupReduction:
    """Average over the ranks of a group, with one collective per dtype and device.

    Args:
        group: a process group. None stands for the group of all ranks.
        device: the device on which flags are exchanged. None chooses the device that
            the group's communication back end needs.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.group = group
        nccl = device is None and dist.get_backend(group) == "nccl"
        self.device = torch.device("cuda" if nccl else device or "cpu")

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
        """Return each tensor's mean, divided before the sum so that it cannot overflow.

        Tensors of one dtype and device are sent in one flat buffer.
        """
        means: dict[int, Tensor] = {}
        for positions in foreach.alike(tensors):
            part = [tensors[k] for k in positions]
            flat = foreach.joined([tensor.reshape(-1) for tensor in part])
            flat.div_(self.size)
            dist.all_reduce(flat, group=self.group)
            pieces = flat.split([tensor.numel() for tensor in part])
            pairs = zip(pieces, part, strict=True)
            shaped = [piece.view(tensor.shape) for piece, tensor in pairs]
            means.update(zip(positions, shaped, strict=True))
        return [means[k] for k in range(len(tensors))]


@torch.no_grad()
@documented
def reduce_gradients(
    grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
    on_horovod: bool,
    model: object = None,
    reduction: Reduction | None = None,
) -> Pairs:
    """...

    First the ranks agree, in a small collective, which gradients are absent on every
    rank.

    Args:
        reduction: the object that averages, such as :class:`GroupReduction`. None
            averages over all ranks of ``torch.distributed``; if it is not initialized,
            this rank is the only one.

    Origin: OpenSeq2Seq (8681d381ed40), ``reduce_gradients``, on Horovod. The gradients
    of a model in ``DistributedDataParallel`` are averaged already.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> pairs = [(torch.ones(2), weight)]
        >>> reduce_gradients(pairs, on_horovod=True)[0][0].tolist()
        [1.0, 1.0]
    """
    words.check_arguments(on_horovod, reduction)
    pairs = parameter_pairs(grads_and_vars, words.REDUCE)
    if shards.are_among([parameter for _, parameter in pairs]):
        raise torch_messages.SHARDED_LOSS.error(owner=words.REDUCE)
    reduction = default_reduction() if reduction is None else reduction
    if reduction is None or reduction.size == 1:
        return pairs
    present = list(reduction.any([gradient is not None for gradient, _ in pairs]))
    held = [
        pair for pair, has_gradient in zip(pairs, present, strict=True) if has_gradient
    ]
    means = list(reduction.all_reduce([dense(*pair) for pair in held]))
    if len(means) != len(held):
        raise refusals.OTHER_NUMBER_OF_MEANS.error(expected=len(held), got=len(means))
    left = iter(means)
    return [
        (next(left) if has_gradient else None, parameter)
        for (_, parameter), has_gradient in zip(pairs, present, strict=True)
    ]


def default_reduction() -> Reduction | None:
    """Return the reduction over all ranks, or None without ``torch.distributed``."""
    ready = dist.is_available() and dist.is_initialized()
    return GroupReduction() if ready else None


def dense(gradient: Tensor | None, parameter: Tensor) -> Tensor:
    """Return the gradient as a dense tensor; zeros if this rank has no gradient."""
    if gradient is None:
        return torch.zeros_like(parameter)
    return gradient.to_dense() if gradient.is_sparse else gradient
