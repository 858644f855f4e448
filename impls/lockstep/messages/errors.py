"""The exceptions that Lockstep raises, the one shape of their sentences, and warnings.

Each class derives from the built-in exception that the original raised, so that old
``except`` clauses keep working.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

__all__ = [
    "AbsentAccumulatedError",
    "AxesError",
    "ClipAndLarcError",
    "DtypeError",
    "GetterError",
    "LockstepError",
    "LossNotCallableError",
    "MalformedPairsError",
    "MissingArgumentError",
    "MissingDecayError",
    "MissingFrameworkError",
    "MissingLossScaleError",
    "MissingMethodError",
    "NoBoundariesError",
    "NoGradientsError",
    "NonFiniteNormError",
    "NotASequenceError",
    "NotAnOptimizerError",
    "NotFromGetterError",
    "NotReducedError",
    "NotScalableError",
    "OutOfRangeError",
    "RateFunctionError",
    "Refusal",
    "ScaleStalledError",
    "ShapeError",
    "UnknownArgumentError",
    "UnknownNameError",
    "UnscaledTwiceError",
    "UnsupportedError",
    "UnusableScaleError",
    "VarListError",
    "nearest",
    "sentence",
    "unknown_name",
    "warn_user",
]

LIBRARIES = ("lockstep", "keras", "tensorflow", "torch", "contextlib", "functools")
"""Packages and modules whose functions stand between a user's line and a warning."""

CONVERTED = "__autograph_generated_file"
"""Part of the names of files that TensorFlow makes of user's functions, and deletes."""


class LockstepError(Exception):
    """Base of every error that Lockstep raises on purpose."""

    if not TYPE_CHECKING:
        # tf.function raises an error of this class only if it knows its constructor.
        __init__ = Exception.__init__


class NotAnOptimizerError(LockstepError, TypeError):
    """The wrapped object is not an optimizer of this backend."""


class NotScalableError(NotAnOptimizerError, ValueError):
    """Loss scaling: the wrapped object is not an optimizer of this backend."""


class MissingLossScaleError(LockstepError, TypeError, ValueError):
    """``loss_scale`` is None (a TypeError in TensorFlow 1.15, later a ValueError)."""


class ScaleStalledError(LockstepError, RuntimeError):
    """Every step is skipped although the loss scale is at its floor."""


class UnscaledTwiceError(LockstepError, RuntimeError):
    """Gradients were unscaled by hand, and then scaled or unscaled before the step."""


class MalformedPairsError(LockstepError, TypeError):
    """``grads_and_vars`` is not an iterable of (gradient, variable) pairs."""


class AxesError(LockstepError, TypeError):
    """``vars_to_clip_dims`` is not a mapping from variables to lists of axes."""


class GetterError(LockstepError, TypeError):
    """No ``AGNCustomGetter`` of this backend, or what such a getter cannot take."""


class NotFromGetterError(LockstepError, KeyError):
    """A variable was not made through the ``AGNCustomGetter``."""

    __str__ = Exception.__str__  # A KeyError shows its argument in quotes.


class DtypeError(LockstepError, TypeError):
    """A tensor has a dtype that the operation cannot work with."""


class NoGradientsError(LockstepError, ValueError):
    """There is nothing to apply: an empty list, or every gradient absent."""


class ShapeError(LockstepError, ValueError):
    """A gradient does not have the shape of its variable."""


class UnknownNameError(LockstepError, ValueError):
    """A name is not one of those known; the sentence gives the nearest."""


class UnknownArgumentError(UnknownNameError, TypeError):
    """An optimizer has no argument of this name; the sentence gives the nearest."""


class MissingArgumentError(LockstepError, TypeError):
    """An optimizer needs an argument that was not given."""


class MissingMethodError(LockstepError, TypeError):
    """A class that only others are to be derived from was itself called."""


class MissingDecayError(LockstepError, KeyError):
    """AdamW without ``weight_decay`` (the original looked it up in a dict)."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class LossNotCallableError(LockstepError, RuntimeError, TypeError):
    """A loss that is nothing to differentiate, or that is needed as a function."""


class RateFunctionError(LockstepError, TypeError, ValueError):
    """What should be a function from the steps to the rate cannot be called so."""


class VarListError(LockstepError, TypeError, ValueError):
    """``var_list`` is no list of variables, or names one twice."""


class OutOfRangeError(LockstepError, ValueError):
    """A value lies outside of its admissible range."""


class NoBoundariesError(LockstepError, IndexError):
    """A piecewise policy has no boundaries."""


class NonFiniteNormError(LockstepError, ValueError):
    """A norm is NaN or infinite and the caller asked to be told."""


class UnsupportedError(LockstepError, ValueError):
    """The host or the mode cannot do what was asked for."""


class ClipAndLarcError(LockstepError, AttributeError, ValueError):
    """Both clipping and LARC were asked for (once an AttributeError)."""


class NotASequenceError(LockstepError, TypeError):
    """What should be a list of tensors is none."""


class NotReducedError(LockstepError, NotImplementedError):
    """Gradients of several towers were to be reduced in one process."""


class UnusableScaleError(LockstepError, AttributeError):
    """Strict: a loss scale that the original accepts and fails to use."""


class AbsentAccumulatedError(LockstepError, AttributeError):
    """Strict: an absent gradient that the original fails to add up."""


class MissingFrameworkError(LockstepError, ModuleNotFoundError):
    """A backend was asked for whose framework is not installed."""


def sentence(subject: str, expected: str, got: str, remedy: str) -> str:
    """Say what was expected, what came and what to do, always in this order."""
    return f"{subject}: expected {expected}, got {got}; {remedy}."


Kind = TypeVar("Kind", bound=LockstepError)


@dataclass(frozen=True)
class Refusal(Generic[Kind]):
    """A row in a capability's table of errors: a class, and what its sentence says.

    The sentence reads as :func:`sentence` builds it: ``SUBJECT: expected X, got Y;
    remedy.`` Its fields stand in braces, as in :meth:`str.format`.

    Example:
        >>> row = Refusal(ShapeError, "{name}: expected [2], got {got}; transpose it.")
        >>> row.error(name="w", got=[3])
        ShapeError('w: expected [2], got [3]; transpose it.')
    """

    kind: type[Kind]
    template: str

    def error(self, **fields: object) -> Kind:
        """Return the error whose sentence has these fields."""
        return self.kind(self.text(**fields))

    def text(self, **fields: object) -> str:
        """Return the sentence alone, as a warning or a graph needs it."""
        return self.template.format(**fields)


def warn_user(text: str) -> None:
    """Warn, and name the user's line: the innermost one outside of all libraries."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_library(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _is_library(frame: FrameType) -> bool:
    """Whether a frame is one of a library's function, or of a converted one."""
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package in LIBRARIES or CONVERTED in frame.f_code.co_filename


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like ``name``, or None if none is like it."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    if name == "lr" and "learning_rate" in by_folded:
        return "learning_rate"  # 'min_lr' is more like it.
    matches = difflib.get_close_matches(str(name).casefold(), by_folded, 1, 0.5)
    return by_folded[matches[0]] if matches else None


def unknown_name(
    kind: str,
    name: object,
    known: Iterable[str],
    others: Mapping[str, str] = MappingProxyType({}),
) -> UnknownNameError:
    """Build the error for an unknown name, with the nearest known one.

    ``others``: names that are often given instead -> the known ones.
    """
    names = sorted(set(known))
    close = nearest(str(name), [*names, *others])
    close = close and others.get(close, close)
    remedy = f"did you mean {close!r}?" if close else "choose one of them"
    text = sentence(kind, f"one of {', '.join(names)}", repr(name), remedy)
    return UnknownNameError(text.removesuffix(".") if close else text)
