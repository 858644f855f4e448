"""Until the last importer has moved: see :mod:`lockstep.pytorch.norms`."""

from lockstep.pytorch.norms import *  # noqa: F403


def as_real(tensor):
    return tensor if tensor.is_floating_point() else tensor.float()
