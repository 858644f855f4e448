"""The errors of centers on Ray and their workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from lockstep.errors import (
    DtypeError,
    GetterError,
    LockstepError,
    MissingFrameworkError,
    OutOfRangeError,
    Refusal,
    ShapeError,
    UnsupportedError,
)

WAITS = (
    "center %r waits for a node with the resources %s, which no node of the cluster "
    "has; start one with ray start --resources, or remove() the center."
)

__all__ = ["CenterEmptyError", "CenterLostError", "TrainingEndedError"]


class TrainingEndedError(LockstepError, RuntimeError):
    """Training was ended, so the center accepts no more pushes."""


class CenterLostError(LockstepError, ConnectionError):
    """A worker's center is gone, or was restarted without its checkpoint."""


class CenterEmptyError(LockstepError, RuntimeError):
    """A center has no weights yet, or lost them; the worker can send its own."""


NO_RAY = Refusal(
    MissingFrameworkError,
    "AGNCustomGetter: expected ray to be installed for center='ray://{name}', "
    "got none; run pip install ray.",
)
NOT_CONNECTED = Refusal(
    UnsupportedError,
    "AGNCustomGetter: expected a process that is connected to Ray for "
    "center='ray://{name}', got one that is not; "
    "call ray.init() first, with the cluster's address if there is one.",
)
NOT_AN_ADDRESS = Refusal(
    GetterError,
    "AGNCustomGetter: center: expected 'ray://NAME' with a NAME of letters, digits, "
    "'.', '_' and '-', got {got!r}; "
    "name the center, and give the address of a cluster to ray.init().",
)
NOT_A_COUNT = Refusal(
    OutOfRangeError,
    "RayCenter: every: expected a number of rounds >= 1, got {got!r}; "
    "say after how many rounds the center writes its checkpoint.",
)
NOT_RESOURCES = Refusal(
    OutOfRangeError,
    "RayCenter: resources: expected names of Ray's own resources with numbers > 0, "
    "such as {{'big': 1}}, got {got!r}; "
    "take those of ray start --resources, and leave CPU, GPU and memory out.",
)
OTHER_RELEASE = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected lockstep {expected}, as the center {center!r} has, "
    "got {got}; install one version on all machines.",
)
OTHER_COMMIT = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected commit={expected!r}, as the first worker of the center "
    "{center!r} has, got {got!r}; give all workers the same.",
)
OTHER_BACKEND = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected a worker on {expected}, as the first of the center "
    "{center!r}, got one on {got}; "
    "use commit='delta' in all workers, which every backend can push.",
)
NO_RULE = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected commit='delta' for a center on Ray, got 'gradient'; "
    "{backend} pushes only changes of weights to other processes.",
)
NOT_EAGER = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected an eager step for a center on Ray, got one in a graph; "
    "train outside of tf.function, and with run_eagerly=True in compile().",
)
NO_ARRAY = Refusal(
    DtypeError,
    "AGNCustomGetter: expected weights of a dtype that NumPy has, for a center on Ray, "
    "got {got} for {name!r}; train float32 weights.",
)
OTHER_SHAPE = Refusal(
    ShapeError,
    "center {center!r}: expected a change of {expected} for {name!r}, got {got}; "
    "push what AGNOptimizer gathers for this weight.",
)
NOT_FINITE = Refusal(
    OutOfRangeError,
    "center {center!r}: expected finite changes, got inf or NaN for {names}; "
    "nothing has moved; take a smaller rate, or RayCenter(on_nonfinite='drop') "
    "to leave such rounds out.",
)
ENDED = Refusal(
    TrainingEndedError,
    "center {center!r}: expected workers before the end of training, got one after it; "
    "stop this worker, or call RayCenter({center!r}).remove() before a new training.",
)
EMPTY = Refusal(
    CenterEmptyError,
    "center {center!r}: expected weights, got none yet; make an AGNOptimizer first.",
)
LOST = Refusal(
    CenterLostError,
    "center {center!r}: expected its process to answer, got {got}; "
    "start a worker again, which makes the center of its last checkpoint.",
)
ANOTHER = Refusal(
    CenterLostError,
    "center {center!r}: expected a push of a worker that joined it, got one of an "
    "earlier center of this name, which is lost; start the worker again.",
)
NO_CHECKPOINT = Refusal(
    CenterLostError,
    "center {center!r}: expected its checkpoint {path} after a restart, got no file; "
    "give RayCenter a directory that all machines can read, and start again.",
)
UNREADABLE = Refusal(
    UnsupportedError,
    "center {center!r}: expected a checkpoint of a center in {path}, got {got}; "
    "move the file away to start from the worker's weights.",
)
OTHER_WEIGHTS = Refusal(
    UnsupportedError,
    "center {center!r}: expected a checkpoint of weights like the worker's in {path}, "
    "got one of {got}; use another directory, or move the file away.",
)
OTHER_RULE = Refusal(
    UnsupportedError,
    "center {center!r}: expected a checkpoint of {expected} in {path}, "
    "got one of {got}; use another directory, or move the file away.",
)
OTHER_STATE = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected a checkpoint of a center with {expected}, "
    "got one with {got}; use another directory, or the optimizer that it was made of.",
)
UNKNOWN_OPTIMIZER = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected an optimizer that the center's process can import, "
    "got {got}; define it in a module that all machines have.",
)
NOT_NUMBERS = Refusal(
    UnsupportedError,
    "AGNOptimizer: expected an optimizer of numbers and text, for commit='gradient' "
    "with a center on Ray, got {opt}, whose {name} is {got:a}; "
    "use commit='delta', or an optimizer without a wrapper inside.",
)
NOT_PLAIN = Refusal(
    UnsupportedError,
    "center {center!r}: expected optimizer state of tensors, numbers and text, "
    "got {got}; a center on Ray cannot save this optimizer.",
)


def require_kinds(expected: Sequence[str], got: Sequence[str]) -> None:
    """Raise for the first difference between the kinds and states of two optimizers."""
    for own, saved in zip_longest(expected, got, fillvalue="nothing more"):
        if own != saved:
            raise OTHER_STATE.error(expected=own, got=saved)
