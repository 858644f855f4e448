"""Warn of parameters that get no gradient because of a reentrant checkpoint.

``torch.utils.checkpoint`` with ``use_reentrant=True`` hides the parameters of its
layers from the graph. They get gradients in ``loss.backward()`` only, and not in a
backward pass for given parameters. If other layers get gradients, no error shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from lockstep.errors import warn_user
from lockstep.messages import pytorch as words

__all__ = ["has_reentrant_checkpoint", "warn_of_reentrant"]

NODE = "CheckpointFunctionBackward"


def warn_of_reentrant(
    owner: str, loss: Tensor, absent: Iterable[Tensor], names: Mapping[Tensor, str]
) -> None:
    """Warn if the loss has a reentrant checkpoint.

    Args:
        owner: the name of the optimizer.
        loss: the loss, whose graph still exists.
        absent: trainable parameters without a gradient.
        names: the names of the optimizer's parameters.
    """
    if has_reentrant_checkpoint(loss):
        known = [names.get(p, f"one of shape {list(p.shape)}") for p in absent]
        warn_user(words.reentrant(owner, known))


def has_reentrant_checkpoint(loss: Tensor) -> bool:
    """Whether the graph of a loss has a checkpoint with ``use_reentrant=True``."""
    nodes, seen = [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        if node.name() == NODE:
            return True
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
    return False
