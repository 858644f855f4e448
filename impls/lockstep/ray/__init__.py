"""A center in its own process, on Ray, for workers on several machines.

``AGNCustomGetter(device, center="ray://NAME")`` creates the center NAME or finds it.
:class:`RayCenter` has its options, such as checkpoints, and ends it. Ray is imported
only when a worker asks for such a center.
"""

from lockstep.errors import CenterLostError as CenterLostError
from lockstep.errors import TrainingEndedError as TrainingEndedError
from lockstep.ray.center import RayCenter as RayCenter
