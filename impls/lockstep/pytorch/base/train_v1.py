"""Until the last importer has moved: see :mod:`lockstep.pytorch.gradients`."""

from lockstep.interface import GATE_GRAPH, GATE_NONE, GATE_OP
from lockstep.pytorch import gradients
from lockstep.pytorch.gradients import *  # noqa: F403


class TrainV1:
    """The methods that every optimizer and wrapper has besides those of torch."""

    GATE_NONE, GATE_OP, GATE_GRAPH = GATE_NONE, GATE_OP, GATE_GRAPH
    _for_step = False
    compute_gradients = gradients.compute_gradients
    apply_gradients = gradients.apply_gradients
    minimize = gradients.minimize
    get_slot = gradients.get_slot
    get_slot_names = gradients.get_slot_names
    variables = gradients.variables

    def took_step(self):
        """Whether the last step counts for ``global_step``; read once a step."""
        return True
