"""Lockstep: the training tools of ``tf.contrib.opt`` and OpenSeq2Seq.

Every backend exports the names of ``lockstep.interface.EXPORTS``, and a few names of
its own:

``lockstep.reference``
    the executable specification in NumPy.
``lockstep.tf``
    ``tf.compat.v1.train.Optimizer`` classes: eager, ``tf.function``, graph + Session.
``lockstep.keras3``
    ``keras.optimizers.Optimizer`` classes, on Keras' TensorFlow back end.
``lockstep.pytorch``
    ``torch.optim.Optimizer`` classes.
``lockstep.tf.strict``, ``lockstep.reference.strict``
    the same names bound to the originals' exact behaviour, quirks included.

Importing ``lockstep`` imports no framework; :func:`lockstep.load` imports one by name.
"""

from lockstep._version import __version__
from lockstep.registry import BACKENDS, load

__all__ = ["BACKENDS", "__version__", "load"]
