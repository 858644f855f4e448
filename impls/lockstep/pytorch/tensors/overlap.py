"""Do tensors share elements, so that one that is written into changes others?"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ["share_elements"]


def share_elements(tensors: Sequence[Tensor]) -> bool:
    """Say whether two tensors begin at one element, or one is expanded.

    ``torch.autograd.grad`` returns such gradients, where ``backward`` makes copies.
    Views that overlap otherwise are not found. Nothing waits for a GPU.
    """
    values = [t._values() if t.is_sparse else t for t in tensors]
    starts = [start for start in map(Tensor.data_ptr, values) if start]
    if len(set(starts)) < len(starts):
        return True
    return any(0 in value.stride() for value in values if not value.is_contiguous())
