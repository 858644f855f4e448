"""Until the last importer has moved: see :mod:`lockstep.pytorch.norms`."""

from lockstep.pytorch.norms import *  # noqa: F403
