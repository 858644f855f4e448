"""What OpenSeq2Seq does with gradients before an update, and its summaries.

``post_process_gradients`` clips gradients or scales them by LARC,
``get_regularization_loss`` adds up penalties.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lockstep import errors
from lockstep.checks import require
from lockstep.interface import Array, Gradient, Rows
from lockstep.larc import LARC, LarcPolicy, larc_policy
from lockstep.reference import arrays, clipping
from lockstep.reference.arrays import SINGLE, Pairs, Variable

OWNER = "post_process_gradients"

OPTIMIZER_SUMMARIES = [
    "learning_rate",
    "gradients",
    "gradient_norm",
    "global_gradient_norm",
    "variables",
    "variable_norm",
    "larc_summaries",
    "loss_scale",
]
"""The names of all summaries."""
DEFAULT_SUMMARIES = ["learning_rate", "global_gradient_norm", "loss_scale"]


class SummaryRecord:
    """A recorder that stores the last value of each tag.

    Attributes:
        scalars: tag -> 0-d array.
        histograms: tag -> array of finite values.
    """

    def __init__(self) -> None:
        self.scalars: dict[str, Any] = {}
        self.histograms: dict[str, Any] = {}

    def scalar(self, tag: str, value: Any) -> None:
        """Store a 0-d value."""
        self.scalars[tag] = value

    def histogram(self, tag: str, values: Any) -> None:
        """Store values of any shape."""
        self.histograms[tag] = values


class Summaries(NamedTuple):
    """The requested summaries and their recorder; without one none is recorded."""

    names: frozenset[str]
    recorder: Any

    def scalar(self, name: str, value: Any, tag: str = "", variable: str = "") -> None:
        """Record a value if ``name`` was requested: under ``tag``, or the name."""
        if self.recorder is not None and name in self.names:
            self.recorder.scalar(tag_of(tag or name, variable), value)

    def pairs(self, pairs: Pairs) -> None:
        """Record each gradient that is present, and its variable."""
        for gradient, variable in pairs if self.recorder is not None else ():
            if gradient is None:
                continue
            summed = arrays.summed_values(gradient)
            for kind, array in (("gradient", summed), ("variable", variable.value)):
                norm, name = f"{kind}_norm", variable.name
                self.scalar(norm, tensor_norm(array), variable=name)
                if f"{kind}s" in self.names:
                    finite = np.where(np.isfinite(array), array, 0)
                    self.recorder.histogram(tag_of(f"{kind}s", name), finite)


def tag_of(kind: str, variable: str) -> str:
    """Return the tag KIND, or KIND/VARIABLE with ":" replaced by "_"."""
    return f"{kind}/{variable.replace(':', '_')}" if variable else kind


def requested(summaries: Iterable[str] | None, owner: str) -> frozenset[str]:
    """Return the names of requested summaries; None means the default ones."""
    names = frozenset(DEFAULT_SUMMARIES if summaries is None else summaries)
    for name in sorted(names.difference(OPTIMIZER_SUMMARIES)):
        raise errors.unknown_name(f"{owner}: summaries", name, OPTIMIZER_SUMMARIES)
    return names


def post_process_gradients(
    grads_and_vars: Iterable[tuple[Gradient, Variable]],
    summaries: Iterable[str] | None,
    lr: npt.ArrayLike,
    clip_gradients: float | None,
    larc_params: Mapping[str, Any] | None,
    recorder: Any = None,
    strict: bool = False,
) -> Pairs:
    """Clip gradients by their global norm if asked to, then scale them by LARC.

    LARC multiplies each gradient g of a variable w by a ratio r, norms in float32:

        clip:  r = min(max(eta |w| / (lr (|g| + epsilon)), min_update), 1)
        scale: r = max(eta |w| / (|g| + epsilon), min_update)

    If both norms are finite, r is 1 where a norm is 0, and in mode "clip" where lr is
    0. Gradients of a scaled loss must be unscaled first, because the weights are not
    scaled.

    Args:
        grads_and_vars: iterable of (gradient or None, variable).
        summaries: names out of ``OPTIMIZER_SUMMARIES``; None for the default ones.
        lr: the learning rate of this step, 0-d, >= 0 and finite.
        clip_gradients: as in :func:`clip_gradients_by_norm`; None does not clip.
        larc_params: ``larc_eta`` (required), ``larc_mode`` ("clip" or "scale"),
            ``min_update`` and ``epsilon`` (1e-7), all float; None for no LARC.
        recorder: records the summaries by ``scalar(tag, value)`` and
            ``histogram(tag, values)``; without one, none is recorded.
        strict: as the original: the ratio of a zero weight is ``min_update``, or NaN if
            lr is 0 too. Sparse gradients become dense. Absent gradients are an error,
            and so is a rate in a tensor that is not float32.

    Returns:
        The pairs, with processed gradients.

    Raises:
        ValueError: a parameter or a summary that is missing, unknown, of another type
            or out of range.

    Origin: OpenSeq2Seq (8681d381ed40), ``post_process_gradients``; You, Gitman,
    Ginsburg: Large Batch Training of Convolutional Networks, 2017.

    Example:
        >>> w = Variable("w", np.float32([3, 4]))
        >>> pairs, params = [(np.float32([12, 16]), w)], {"larc_eta": 0.015625}
        >>> processed = post_process_gradients(pairs, [], 0.125, None, params)
        >>> processed[0][0].tolist()  # r = 0.015625 * 5 / (0.125 * 20) = 0.03125
        [0.375, 0.5]
    """
    asked = Summaries(requested(summaries, OWNER), recorder)
    policy = None if larc_params is None else larc_policy(larc_params, not strict)
    pairs = arrays.as_pairs(grads_and_vars, OWNER)
    if policy and not strict and not isinstance(lr, np.ndarray | np.generic):
        fine = 0 <= lr < math.inf  # type: ignore[operator]  # clip-limit
        require(LARC, "lr", lr, fine, "a finite number >= 0, or a 0-d tensor")
    if strict and (policy or "global_gradient_norm" in asked.names):  # clip-absent
        clipping.require_present(pairs, OWNER)
    name = "global_gradient_norm"
    asked.scalar(name, clipping.norm_of_pairs(pairs, strict))
    if clip_gradients is not None:
        pairs = clipping.clip_gradients_by_norm(pairs, clip_gradients, strict)
        after = clipping.norm_of_pairs(pairs, strict)
        asked.scalar(name, after, "global_clipped_gradient_norm")
    asked.pairs(pairs)
    if policy is not None:
        pairs = apply_larc(policy, pairs, np.asarray(lr, SINGLE), asked, strict)
    return pairs


def apply_larc(
    policy: LarcPolicy, pairs: Pairs, rate: Array, asked: Summaries, strict: bool
) -> Pairs:
    """Multiply each gradient that is not None by its ratio."""
    clips = policy.larc_mode == "clip"
    scaled: Pairs = []
    for gradient, variable in pairs:
        if gradient is None:
            scaled.append((None, variable))
            continue
        if strict:  # larc-sparse
            gradient = arrays.densify(gradient, variable.shape)
        norms = tensor_norm(variable.value), tensor_norm(gradient)
        raw = raw_ratio(policy, rate, *norms, strict)
        ratio = np.asarray(np.minimum(raw, np.float32(1))) if clips else raw

        def times_ratio(values: Array, ratio: Array = ratio) -> Array:
            is_half = str(values.dtype) in arrays.LARGEST
            cast = arrays.saturating_cast if is_half else np.asarray
            return np.asarray(values * cast(ratio, values.dtype))

        scaled.append((arrays.map_values(times_ratio, gradient), variable))
        values = {"larc_grad_update": ratio, "larc_final_lr": rate * ratio}
        if clips:
            values["larc_clip_on"] = np.asarray(raw < 1, np.int32)
        for tag, value in values.items():
            asked.scalar("larc_summaries", value, tag, variable.name)
    return scaled


def tensor_norm(tensor: Array | Rows) -> Array:
    """Return the norm sqrt(sum of squares), duplicate rows summed: float32 and 0-d."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(arrays.summed_values(tensor).astype(SINGLE))
        return np.asarray(np.sqrt(arrays.lane_sum(squares)))


def raw_ratio(
    policy: LarcPolicy, rate: Array, weight: Array, gradient: Array, strict: bool
) -> Array:
    """Return the ratio of norms |w| and |g| before it is limited to 1: float32, 0-d."""
    eta, epsilon = np.float32(policy.larc_eta), np.float32(policy.epsilon)
    with np.errstate(all="ignore"):
        divisor, still = gradient + epsilon, weight == 0 or gradient == 0
        if policy.larc_mode == "clip":
            divisor, still = rate * divisor, still or rate == 0
        if not strict and still and np.isfinite(weight + gradient):  # larc-zero-norm
            return np.asarray(np.float32(1))
        raw = eta * weight / divisor
        return np.asarray(np.maximum(raw, np.float32(policy.min_update)))


def reduce_gradients(
    grads_and_vars: Iterable[tuple[Gradient, Variable]],
    on_horovod: bool,
    model: object = None,
) -> Pairs:
    """Return each gradient's mean over the ranks, of which NumPy has only one.

    Args:
        grads_and_vars: iterable of (gradient or None, variable).
        on_horovod: must be True; the original raises otherwise.
        model: as in OpenSeq2Seq; without effect.

    Returns:
        The pairs, unchanged.

    Raises:
        NotReducedError: a NotImplementedError; ``on_horovod`` is False.
        NoGradientsError: a ValueError; an empty list.

    Origin: OpenSeq2Seq (8681d381ed40), ``reduce_gradients``, on Horovod.
    """
    if not on_horovod:
        raise errors.NotReducedError(
            "reduce_gradients: expected on_horovod=True, got False; gradients of "
            "several towers in one process were never reduced; add them."
        )
    return arrays.as_pairs(grads_and_vars, "reduce_gradients")


def get_regularization_loss(
    scope: str | None = None,
    name: str = "total_regularization_loss",
    losses: Mapping[str, Any] | None = None,
) -> Array:
    """Return the sum of the losses in float32, each cast first: 0-d.

    Args:
        scope: a regular expression that must match at the start of a loss's name.
        name: as in TensorFlow; without effect.
        losses: name -> loss, 0-d. Losses of None, which :func:`mp_regularizer_wrapper`
            returns for a weight in half precision, are ignored. The sum of no losses is
            0.

    Origin: OpenSeq2Seq (8681d381ed40), ``get_regularization_loss``.

    Example:
        >>> float(get_regularization_loss("enc", losses={"enc/w": 1.5, "dec/w": 2.0}))
        1.5
    """
    pattern = re.compile(scope or "")
    chosen = [loss for name, loss in (losses or {}).items() if pattern.match(name)]
    singles = [np.float32(loss) for loss in chosen if loss is not None]
    # TensorFlow adds two to nine losses first, then sums of eight.
    first = (len(singles) - 2) % 8 + 2
    starts = range(first, len(singles), 8)
    groups = [singles[:first], *(singles[start : start + 8] for start in starts)]
    zero = np.zeros((), np.float32)
    return np.asarray(sum((sum(group, zero) for group in groups), zero))
