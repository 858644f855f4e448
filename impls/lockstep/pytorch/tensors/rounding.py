"""Until the last importer has moved: see :mod:`lockstep.pytorch.foreach`."""

from lockstep.pytorch.foreach import *  # noqa: F403


def plain(value):
    return (
        value.item()
        if hasattr(value, "dtype") and not hasattr(value, "layout")
        else value
    )
