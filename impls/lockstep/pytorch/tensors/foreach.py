"""Until the last importer has moved: see :mod:`lockstep.pytorch.foreach`."""

from lockstep.pytorch.foreach import *  # noqa: F403
