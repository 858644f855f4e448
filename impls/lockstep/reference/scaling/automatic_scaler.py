"""The automatic loss scaler of OpenSeq2Seq: Backoff or LogMax."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from lockstep.docstrings import documented
from lockstep.interface import Array, Gradient, Rows
from lockstep.messages.base.pairs import listed_pairs
from lockstep.messages.scaling import automatic_scaler as words
from lockstep.quirks import quirks_of
from lockstep.reference.scaling.backoff import BackoffState, start_backoff, step_backoff
from lockstep.reference.scaling.logmax import LogMaxState, start_logmax, step_logmax

__all__ = ["AutomaticLossScaler"]


@documented
class AutomaticLossScaler:
    """A loss scale that is updated with the largest gradient of every step.

    ...
    """

    SUPPORTED_ALGOS: ClassVar[list[str]] = words.ALGORITHMS

    def __init__(
        self,
        algorithm: str = "Backoff",
        params: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> None:
        self.algorithm = words.algorithm_name(algorithm)
        self.policy: Any = words.automatic_policy(self.algorithm, params, strict)
        self.quirks = quirks_of(strict)
        backoff = self.algorithm == "backoff"
        start: Any = start_backoff if backoff else start_logmax
        self.tuple: BackoffState | LogMaxState = start(self.policy)

    @property
    def loss_scale(self) -> np.float32:
        """The current scale."""
        return self.tuple.loss_scale

    @property
    def state(self) -> dict[str, Any]:
        """The scaler's state by name."""
        return self.tuple._asdict()

    def at_floor(self) -> bool:
        """Return whether no overflow can lower the scale any more."""
        return bool(self.loss_scale <= np.float32(self.policy.scale_min))

    def update_op(self, has_nan: Any, amax: Any) -> int:
        """Update the scale after a step; return the number of steps so far."""
        words.check_update(has_nan, amax, self.quirks.arguments_unchecked)
        amax = np.float32(amax) if isinstance(amax, float) else np.asarray(amax)
        if self.quirks.logmax_overflow and self.algorithm == "logmax":
            words.check_amax_dtype(str(amax.dtype))
        step: Any = step_backoff if self.algorithm == "backoff" else step_logmax
        self.tuple = step(self.policy, self.tuple, bool(has_nan), float(amax))
        return self.tuple.iteration

    @staticmethod
    def check_grads(
        grads_and_vars: Iterable[tuple[Gradient, Any]],
    ) -> tuple[np.bool_, Array]:
        """Return whether any element is NaN, and the largest magnitude of the others.

        Without any element the magnitude is -inf. Rows that share an index are not
        summed.

        Raises:
            TypeError: gradients of several dtypes.
        """
        present = [
            np.asarray(g.values if isinstance(g, Rows) else g)
            for g, _ in listed_pairs(grads_and_vars, words.CHECK_GRADS)
            if g is not None
        ]
        words.check_check_grads_dtypes([str(values.dtype) for values in present])
        dtype = present[0].dtype if present else np.dtype(np.float32)
        has_nan, amax = False, -np.inf
        for values in present:
            for value in np.abs(values).ravel().tolist():
                has_nan = has_nan or value != value
                amax = max(amax, value)
        return np.bool_(has_nan), np.asarray(amax, dtype)
