"""AGN workers: docstring texts that all backends share."""

from __future__ import annotations

__all__ = ["TEXTS"]

TEXTS: dict[str, str] = {
    "AGNOptimizer": """\
Train a worker's own weights; every P steps push a mean gradient to shared ones.

With P = ``communication_period``, g a gradient at the worker's weights w, a the
accumulator of w and c the shared weights, for each {variable} with a gradient:

1. ``optimizer`` applies g to w;
2. a = a + g;
3. local_step = local_step + 1, once a call;
4. if local_step is a multiple of P: a = a / P; the same optimizer applies a to c,
   with slots that belong to c and powers of beta that belong to the worker; then
   global_step = global_step + 1, w = c, a = 0. The slots of w stay.

With ``commit="delta"``, as in the paper, step 2 adds to a the change that step 1 made
to w, and step 4 is c = c + a / P. A {variable} whose gradient is absent in the call
that ends a round is neither pushed nor pulled.

Args:
    num_worker: the number of workers, >= 1; it changes no result.
    custom_getter: the :class:`AGNCustomGetter` that made the shared {variable}s.
    communication_period: P: local steps between two pushes, >= 1.
    use_locking: without effect.
    name: the name that ``get_name`` returns.
    commit: ``"gradient"`` or ``"delta"``.

Raises:
    NotAnOptimizerError: a TypeError; ``optimizer`` is no optimizer of this backend.
    GetterError: a TypeError; ``custom_getter`` is none of this backend.
    OutOfRangeError: a ValueError; a period or count below 1.
    UnknownNameError: a ValueError; an unknown ``commit``.
    UnsupportedError: a ValueError; ``optimizer`` scales losses.

Origin: TensorFlow 1.15, ``tf.contrib.opt.AGNOptimizer``; J. Hermans, G. Spanakis,
R. Moeckel, "Accumulated Gradient Normalization", 2017 (arXiv:1710.02368).
""",
    "AGNCustomGetter": """\
Make the shared {variable} and the accumulator of each of a worker's {variable}s.

Args:
    center: the :class:`Center` of the other workers, their getter's ``center``;
        None creates one. ``"ray://NAME"`` or a :class:`~lockstep.ray.RayCenter` is a
        center in its own process, for workers of other processes and machines.
    strict: as ``tf.contrib.opt.AGNCustomGetter`` (1.15): an accumulator holds the
        {variable}'s value until the init op has run.

Attributes:
    center: the weights that the workers share.

Raises:
    GetterError: a TypeError; ``center`` is no center.
""",
}
"""Name of a class or function -> its shared docstring text."""
