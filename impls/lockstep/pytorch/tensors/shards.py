"""Until the last importer has moved: see :mod:`lockstep.pytorch.shards`."""

from lockstep.pytorch.shards import *  # noqa: F403
