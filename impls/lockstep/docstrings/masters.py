"""Float32 masters: docstring texts that all backends share."""

from __future__ import annotations

__all__ = ["TEXTS"]

TEXTS: dict[str, str] = {
    "MixedPrecisionOptimizerWrapper": """\
Train half-precision {variable}s through float32 masters, with a scaled loss.

Args:
    loss_scale: a number > 0, None for 1, ``dynamic``, an ``AutomaticLossScaler`` or
        a loss scale.
    clip_norm, at_floor, floor_patience: as in
        :class:`~lockstep.{backend}.MixedPrecisionLossScaleOptimizer`. A number
        never changes, so it is always at its floor.

Origin: OpenSeq2Seq, ``MixedPrecisionOptimizerWrapper``; P. Micikevicius et al.,
"Mixed Precision Training". By default we differ in what ``strict`` lists.
""",
    "mp_regularizer_wrapper": """\
Leave the regularization of half-precision weights to the optimizer.

Args:
    regularizer: weight -> penalty, 0-d, or None.

Raises:
    DtypeError: a TypeError; ``regularizer`` cannot be called.
""",
}
"""Name of a class or function -> its shared docstring text."""
