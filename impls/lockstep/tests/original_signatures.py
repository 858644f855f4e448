"""The originals' signatures, and what a backend may have beside them, as data.

A signature is in the module of its tool in ``tools``.
"""

from __future__ import annotations

from lockstep.tests.tools import collected

__all__ = ["BEFORE", "BESIDE", "OURS", "RULES", "SIGNATURES"]

SIGNATURES: dict[str, str] = dict(
    sorted(collected("SIGNATURES").items(), key=lambda entry: ("." in entry[0], entry))
)
"""Name -> arguments, from TensorFlow 1.15 and OpenSeq2Seq; policies come last."""

OURS = {"OPTIMIZER_CLS_NAMES", "OPTIMIZER_SUMMARIES", "lr_policies", "pipeline_of"}
"""Exports that are no class or function of the originals."""

RULES = [name for name in SIGNATURES if name.endswith("Optimizer")]
RULES = [*(n for n in RULES if "learning_rate" in SIGNATURES[n]), "NovoGrad"]

# torch makes an optimizer of parameters, and they come first.
BEFORE: dict[str, tuple[str, ...]] = {f"pytorch.{name}": ("params",) for name in RULES}
"""Arguments that come before the original's."""

BESIDE: dict[str, tuple[str, ...]] = {
    # Without a graph workers find no shared variables by their names.
    "AGNCustomGetter": ("center",),
    # These are TensorFlow 2's own, or derive from it.
    "tf.AdamOptimizer": ("use_own_namescope_for_non_slot_vars",),
    "tf.FtrlOptimizer": ("beta",),
    # Without a graph there are no collections of losses and summaries.
    "get_regularization_loss": ("losses",),
    "post_process_gradients": ("recorder",),
    # Horovod is not there; this averages in its place.
    "optimize_loss": ("reduction",),
    "reduce_gradients": ("reduction",),
    # NumPy has one rank.
    "reference.optimize_loss": (),
    "reference.reduce_gradients": (),
}
"""Arguments of strict names that come after the original's."""
