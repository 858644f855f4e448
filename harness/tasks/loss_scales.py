"""The loss scales that several tasks use, by name."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Literal, Required

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from harness.tasks.schema import Label, require


@with_config(ConfigDict(extra="forbid", strict=True))
class Method(TypedDict, total=False):
    """The precision and the loss scale of a run.

    Attributes:
        dtype: of weights and activations.
        scale: none, a fixed number, or a loss scaler of Lockstep.
        arguments: of the scale, by name; of a fixed one its ``value``.
        strict: whether Backoff or LogMax has the original's quirks.
    """

    label: Required[Label]
    dtype: Required[Literal["float32", "float16", "bfloat16"]]
    scale: Literal["none", "fixed", "dynamic", "Backoff", "LogMax"]
    arguments: dict[str, Any]
    strict: bool


class ScaledSettings:
    """The settings of a run with a loss scale."""

    method: Method

    @property
    def label(self) -> str:
        return self.method["label"]

    @property
    def dtype(self) -> str:
        return self.method["dtype"]

    @property
    def scale(self) -> str:
        """The name of the loss scale."""
        return self.method.get("scale", "none")

    @property
    def is_plain(self) -> bool:
        """Whether this is plain float32 training."""
        return self.dtype == "float32" and self.scale == "none"


def make_scale(method: Method, names: ModuleType) -> Any:
    """Return the loss scale of a run as an argument of the wrapper in ``names``.

    ``names`` is a backend, such as ``lockstep.pytorch``. An experiment makes each scale
    on the reference when it is declared, so that wrong arguments are found then.
    """
    scale, arguments = method.get("scale", "none"), method.get("arguments", {})
    if scale == "none":
        return None
    if scale == "fixed":
        alone = list(arguments) == ["value"]
        require(alone, "method.arguments", "a value alone", arguments)
        return arguments["value"]
    if scale == "dynamic":
        return names.DynamicLossScale(**arguments)
    strict = method.get("strict", False)
    return names.AutomaticLossScaler(scale, arguments, strict)
