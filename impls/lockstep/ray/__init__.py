"""A center in a process of its own, on Ray, for workers on several machines.

``AGNCustomGetter(device, center="ray://NAME")`` makes the center NAME or finds it.
:class:`RayCenter` says how it saves itself, and ends it. Nothing here imports Ray
before a worker asks for such a center.
"""

from lockstep.messages.ray import CenterLostError as CenterLostError
from lockstep.messages.ray import TrainingEndedError as TrainingEndedError
from lockstep.ray.center import RayCenter as RayCenter

__all__ = ["CenterLostError", "RayCenter", "TrainingEndedError"]
