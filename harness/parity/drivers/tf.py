"""The driver of TensorFlow, in four modes.

======== =========================================================================
eager    one operation at a time
function inside ``tf.function``
graph    ``tf.Graph`` and Session, resource variables, control flow v2
v1       the same under ``disable_v2_behavior()``, reference variables unless asked
======== =========================================================================

The originals were recorded one operation at a time. TensorFlow's graph rewriting
(grappler's meta optimizer) reorders arithmetic, so it is disabled here. The mode
``function`` disables it for the whole process, and ``v1`` changes TensorFlow's
behaviour permanently. So use a new process for each mode, and a new driver for each
case.
"""

from __future__ import annotations

from types import ModuleType

from harness.parity.drivers.tensors import use_device
from harness.parity.drivers.tf_eager import EagerDriver, FunctionDriver
from harness.parity.drivers.tf_graph import GraphDriver, V1Driver

__all__ = ["EagerDriver", "FunctionDriver", "GraphDriver", "V1Driver", "make_driver"]


def make_driver(mode: str, names: ModuleType, device: str = "cpu") -> EagerDriver:
    """Return the driver for ``mode`` and the names under test.

    If TensorFlow sees a GPU, it uses it. So for the CPU the GPUs are hidden.
    """
    use_device(device)
    drivers = (EagerDriver, FunctionDriver, GraphDriver, V1Driver)
    return {driver.mode: driver for driver in drivers}[mode](names)
