"""The exceptions that Lockstep raises, the form of their messages, and warnings.

Each class derives from the built-in exception that the original raised, so that old
``except`` clauses keep working.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

LIBRARIES = ("lockstep", "keras", "tensorflow", "torch", "contextlib", "functools")
"""Packages and modules whose stack frames a warning skips to find the user's line."""

CONVERTED = "__autograph_generated_file"
"""Part of the names of temporary files into which AutoGraph converts functions."""


class LockstepError(Exception):
    """Base of every error that Lockstep raises on purpose."""

    if not TYPE_CHECKING:  # tf.function re-raises it by a standard constructor only.
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


class CrossReplicaError(LockstepError, RuntimeError):
    """TensorFlow: a step was taken outside of a replica's context."""


class MalformedPairsError(LockstepError, TypeError):
    """``grads_and_vars`` is not an iterable of (gradient, variable) pairs."""


class AxesError(LockstepError, TypeError):
    """``vars_to_clip_dims`` is not a mapping from variables to lists of axes."""


class GetterError(LockstepError, TypeError):
    """No ``AGNCustomGetter`` of this backend, or an invalid argument of one."""


class NotFromGetterError(LockstepError, KeyError):
    """A variable was not created through the ``AGNCustomGetter``."""

    __str__ = Exception.__str__  # A KeyError shows its argument in quotes.


class DtypeError(LockstepError, TypeError):
    """A tensor has a dtype that the operation does not support."""


class NoGradientsError(LockstepError, ValueError):
    """There is nothing to apply: the list is empty, or every gradient is None."""


class ShapeError(LockstepError, ValueError):
    """A gradient does not have the shape of its variable."""


class UnknownNameError(LockstepError, ValueError):
    """A name is unknown; the message suggests the nearest one."""


class UnknownArgumentError(UnknownNameError, TypeError):
    """An optimizer has no argument of this name; the message suggests the nearest."""


class MissingArgumentError(LockstepError, TypeError):
    """An optimizer needs an argument that was not given."""


class MissingDecayError(LockstepError, KeyError):
    """AdamW without ``weight_decay`` (the original looked it up in a dict)."""

    __str__ = Exception.__str__


class LossNotCallableError(LockstepError, RuntimeError, TypeError):
    """A loss cannot be differentiated, or must be a function."""


class RateFunctionError(LockstepError, TypeError, ValueError):
    """An argument is not a function from the step to the learning rate."""


class VarListError(LockstepError, TypeError, ValueError):
    """``var_list`` is no list of variables, or lists one twice."""


class OutOfRangeError(LockstepError, ValueError):
    """A value is outside its admissible range."""


class NoBoundariesError(LockstepError, IndexError):
    """A piecewise policy has no boundaries."""


class NonFiniteNormError(LockstepError, ValueError):
    """A norm is NaN or infinite, and the caller asked for an error."""


class UnsupportedError(LockstepError, ValueError):
    """The backend or the mode does not support the request."""


class ClipAndLarcError(LockstepError, AttributeError, ValueError):
    """Both clipping and LARC were requested (an AttributeError in OpenSeq2Seq)."""


class NotASequenceError(LockstepError, TypeError):
    """An argument is not a list of tensors."""


class NotReducedError(LockstepError, NotImplementedError):
    """The reduction over several towers in one process is not implemented."""


class UnusableScaleError(LockstepError, AttributeError):
    """Strict: a loss scale that the original accepts but cannot use."""


class AbsentAccumulatedError(LockstepError, AttributeError):
    """Strict: an absent gradient, which the original cannot accumulate."""


class TrainingEndedError(LockstepError, RuntimeError):
    """Training was ended, so the center on Ray accepts no more pushes."""


class CenterLostError(LockstepError, ConnectionError):
    """A worker's center on Ray is gone, or was restarted without its checkpoint."""


class CenterEmptyError(LockstepError, RuntimeError):
    """A center has no weights yet, or lost them; the worker can send its own."""


class PortError(LockstepError, ValueError):
    """``lockstep port`` cannot read, port or write a file."""


class MissingFrameworkError(LockstepError, ModuleNotFoundError):
    """The framework of the requested backend is not installed."""


def sentence(subject: str, expected: str, got: str, remedy: str) -> str:
    """Return an error message: what was expected, what was given, and the remedy."""
    return f"{subject}: expected {expected}, got {got}; {remedy}."


def with_article(noun: str) -> str:
    """Return a noun, such as the name of a class, with "a" or "an" before it."""
    starts_as_vowel = noun.lower().startswith(("a", "e", "i", "o", "nd"))
    return f"{'an' if starts_as_vowel and not noun.startswith('one') else 'a'} {noun}"


def warn_user(text: str) -> None:
    """Warn at the user's line: the innermost stack frame outside of all libraries."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in LIBRARIES and CONVERTED not in frame.f_code.co_filename:
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to ``name``, or None if none is similar."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    if name == "lr" and "learning_rate" in by_folded:
        return "learning_rate"  # difflib would choose 'min_lr'.
    matches = difflib.get_close_matches(str(name).casefold(), by_folded, 1, 0.5)
    return by_folded[matches[0]] if matches else None


def unknown_name(
    kind: str,
    name: object,
    known: Iterable[str],
    others: Mapping[str, str] = MappingProxyType({}),
) -> UnknownNameError:
    """Build the error for an unknown name, with the nearest known name.

    ``others``: names that are often given by mistake -> the known names.
    """
    names = sorted(set(known))
    close = nearest(str(name), [*names, *others])
    close = close and others.get(close, close)
    remedy = f"did you mean {close!r}?" if close else "choose one of them"
    text = sentence(kind, f"one of {', '.join(names)}", repr(name), remedy)
    return UnknownNameError(text.removesuffix(".") if close else text)
