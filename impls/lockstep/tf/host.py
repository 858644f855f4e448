"""TensorFlow as the harness drives it, in four faces.

======== =========================================================================
eager    one operation at a time
function inside ``tf.function``
graph    ``tf.Graph`` and Session, resource variables, control flow v2
v1       the same under ``disable_v2_behavior()``, reference variables unless asked
======== =========================================================================

Implements :class:`lockstep.interface.Host`. The originals were recorded one operation
at a time. TensorFlow's rewriting of graphs (grappler's meta optimizer) reorders
arithmetic, so it is off here. The face ``function`` switches it off for the whole
process and ``v1`` changes TensorFlow's behaviour for good: give each face a process of
its own, and each case a host.
"""

from __future__ import annotations

from types import ModuleType

from lockstep.tf.core.device import use_device
from lockstep.tf.eager_host import EagerHost, FunctionHost
from lockstep.tf.graph_host import GraphHost, V1Host

__all__ = ["EagerHost", "FunctionHost", "GraphHost", "V1Host", "make_host"]


def make_host(face: str, names: ModuleType, device: str = "cpu") -> EagerHost:
    """Return the host for ``face`` and the names under test.

    TensorFlow puts on a GPU what it can once it sees one: on the CPU it sees none.
    """
    use_device(device)
    hosts = (EagerHost, FunctionHost, GraphHost, V1Host)
    return {host.face: host for host in hosts}[face](names)
