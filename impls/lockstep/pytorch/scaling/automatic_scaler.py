"""The automatic loss scaler of OpenSeq2Seq, for PyTorch: Backoff or LogMax."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from lockstep.docstrings import documented
from lockstep.messages.base.pairs import listed_pairs
from lockstep.messages.scaling import automatic_scaler as words
from lockstep.pytorch.base.gradients import dtype_name, require_tensor
from lockstep.pytorch.scaling.backoff import start_backoff, step_backoff
from lockstep.pytorch.scaling.logmax import start_logmax, step_logmax
from lockstep.pytorch.tensors import foreach, shards
from lockstep.pytorch.tensors.norms import together
from lockstep.quirks import quirks_of

__all__ = ["AutomaticLossScaler"]


@documented
class AutomaticLossScaler:
    """...

    State: Python numbers; see ``state_dict``.

    Example:
        >>> scaler = AutomaticLossScaler("Backoff", {"scale_max": 1024.0})
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> pairs = [(torch.tensor([float("inf"), 1.0]), weight)]
        >>> scaler.update_op(*scaler.check_grads(pairs))
        1
        >>> scaler.loss_scale.item()
        512.0
    """

    SUPPORTED_ALGOS: ClassVar[list[str]] = words.ALGORITHMS

    is_taken = False
    """Whether an optimizer moves it: a second one would count its steps as well."""

    def __init__(
        self,
        algorithm: str = "Backoff",
        params: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> None:
        self.algorithm = words.algorithm_name(algorithm)
        self.policy = words.automatic_policy(self.algorithm, params, strict)
        self.strict, self._quirks = strict, quirks_of(strict)
        start = start_backoff if self.algorithm == "backoff" else start_logmax
        self._state = start(self.policy)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to copy: a copy belongs to no optimizer yet."""
        return {k: v for k, v in vars(self).items() if k not in ("is_taken", "_quirks")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._quirks = quirks_of(self.strict)

    @property
    def loss_scale(self) -> Tensor:
        """The current scale: a 0-d float32 tensor."""
        scale = float(self._state.loss_scale)
        return torch.tensor(scale, dtype=torch.float32, device="cpu")

    @property
    def state(self) -> dict[str, float | int]:
        """All that changes: name -> Python number."""
        return {name: plain(value) for name, value in self._state._asdict().items()}

    def state_dict(self) -> dict[str, float | int]:
        """Return the state as Python numbers, for ``load_state_dict``."""
        return self.state

    def load_state_dict(self, state_dict: Mapping[str, float | int]) -> None:
        """Load what ``state_dict`` returned.

        Raises:
            ValueError: the state of another algorithm.
        """
        self.check_state(state_dict)
        cast = {
            name: type(value)(state_dict[name])
            for name, value in self._state._asdict().items()
        }
        self._state = self._state._replace(**cast)

    def check_state(self, state_dict: Mapping[str, float | int]) -> None:
        """Raise unless ``state_dict`` of the same algorithm returned this state."""
        fields = self._state._fields
        unchecked = self._quirks.arguments_unchecked
        words.check_state(self.algorithm, state_dict, fields, unchecked)

    def update_op(self, has_nan: Tensor | bool, amax: Tensor | float) -> int:
        """Update the scale after a step, and return the number of steps.

        This costs one host sync if the arguments are tensors on a GPU.
        """
        unchecked = self._quirks.arguments_unchecked
        words.check_update(has_nan, amax, unchecked)
        dtype = dtype_name(amax) if isinstance(amax, Tensor) else "float32"
        if self._quirks.logmax_overflow and self.algorithm == "logmax":
            words.check_amax_dtype(dtype)
        if isinstance(amax, Tensor):
            flag = torch.as_tensor(has_nan, device=amax.device).to(amax.dtype)
            both = [flag.reshape(()), amax.reshape(())]
            has_nan, amax = foreach.joined(both, torch.stack).tolist()
            words.check_update(bool(has_nan), amax, unchecked)
        step = step_backoff if self.algorithm == "backoff" else step_logmax
        self._state = step(self.policy, self._state, bool(has_nan), float(amax))
        return self._state.iteration

    @staticmethod
    @torch.no_grad()
    def check_grads(
        grads_and_vars: Iterable[tuple[Tensor | None, Any]],
    ) -> tuple[Tensor, Tensor]:
        """Return whether there is a NaN, and the largest magnitude of the others.

        Both are 0-d tensors, and there is no host sync. Without elements, the magnitude
        is -inf. Rows with the same index are not summed.

        Raises:
            TypeError: the entries are not pairs of a gradient and a parameter, or the
                gradients have several dtypes, integers or complex numbers.
        """
        pairs = listed_pairs(grads_and_vars, words.CHECK_GRADS)
        for position, (gradient, _) in enumerate(pairs):
            require_tensor(gradient, words.CHECK_GRADS, f"pair {position}")
        whole = [gradient for gradient, _ in pairs if gradient is not None]
        if is_sharded := shards.are_among(whole):
            whole = shards.added_up(whole)
        present = [g._values() if g.is_sparse else g for g in shards.parts_of(whole)]
        words.check_check_grads_dtypes([dtype_name(values) for values in present])
        if not present:
            lowest = torch.tensor(-torch.inf, dtype=torch.float32, device="cpu")
            return torch.tensor(False, device="cpu"), lowest
        start = present[0].new_full((1,), -torch.inf)
        has_nan = together([v.isnan().any() for v in present], start.device)
        maxima = together([largest(values, start) for values in present], start.device)
        if is_sharded:
            has_nan = shards.largest(has_nan.float(), whole) > 0
            maxima = shards.largest(maxima, whole)
        return has_nan.any(), maxima.amax()


def largest(values: Tensor, start: Tensor) -> Tensor:
    """Return the largest magnitude without NaN, at least ``start`` [1]."""
    magnitudes = values.abs().reshape(-1)
    numbers = torch.where(magnitudes.isnan(), -torch.inf, magnitudes)
    return foreach.joined([start.to(values.device), numbers]).amax()


def plain(value: Any) -> float | int:
    """Return a NumPy number as a Python number."""
    return value if isinstance(value, int) else float(value)
