"""The parameters that ``optimize_loss`` is to train, and those of its optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from lockstep.messages import pytorch as torch_host
from lockstep.messages.step import arguments as checks
from lockstep.messages.step import refusals
from lockstep.messages.step.training_step import OWNER
from lockstep.pipeline import layers_of
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.masters.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.pytorch.tensors import shards

__all__ = [
    "Named",
    "require_known",
    "require_same",
    "trained",
    "weights_of",
]

Named = list[tuple[str | None, Tensor]]


def trained(var_list: Any, model: Any, optimizer: Any) -> Named:
    """Return the parameters to train, and their names if they have names."""
    if isinstance(model, DistributedDataParallel):
        raise refusals.WRAPPED_FOR_RANKS.error(got=type(model).__name__)
    of_model = dict(model.named_parameters()) if isinstance(model, nn.Module) else {}
    if var_list is not None:
        listed = [as_named(entry) for entry in checks.listed(var_list, Tensor)]
        checks.check_once(
            [p for _, p in listed], lambda p: f"one of shape {list(p.shape)}"
        )
        if not listed:
            raise refusals.NO_VARIABLES.error(
                expected="parameters", got="an empty list"
            )
    elif isinstance(optimizer, Optimizer):
        listed = [(None, parameter) for parameter in named_parameters(optimizer)]
    else:
        listed = [(n, p) for n, p in of_model.items() if p.requires_grad]
        if model is not None and not listed:
            expected = "a model with parameters that require a gradient"
            raise checks.untrainable(model, expected, "named_parameters")
    if not listed:
        raise refusals.NO_VARIABLES.error(
            expected="parameters, or a model that has some", got="neither"
        )
    if shards.are_among([parameter for _, parameter in listed]):
        raise torch_host.SHARDED_LOSS.error(owner=OWNER)
    names = {parameter: name for name, parameter in of_model.items()}
    return [(name or names.get(parameter), parameter) for name, parameter in listed]


def weights_of(optimizer: Optimizer, parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return parameters of an optimizer, with the model's weights for masters."""
    for layer in layers_of(optimizer):
        if isinstance(layer, MixedPrecisionOptimizerWrapper):
            return layer.copies.weights(parameters)
    return list(parameters)


def as_named(entry: Any) -> tuple[str | None, Tensor]:
    """Return a listed parameter and its name; the name is None if it has none."""
    if isinstance(entry, Tensor):
        return None, entry
    if isinstance(entry, tuple) and len(entry) == 2:
        if isinstance(entry[0], str) and isinstance(entry[1], Tensor):
            return entry
    raise checks.not_a_variable("parameters, or pairs (name, parameter)", entry)


def require_same(model: Any, known: Mapping[Tensor, str]) -> None:
    """Raise if the optimizer lacks trainable parameters or has foreign ones."""
    if not isinstance(model, nn.Module):
        return
    of_model = {p: name for name, p in model.named_parameters()}
    left_out = [n for p, n in of_model.items() if p.requires_grad and p not in known]
    added = set(known) - set(of_model)
    if left_out or added:
        raise checks.other_parameters(left_out, len(added))


def require_known(named: Named, known: Mapping[Tensor, str]) -> None:
    """Raise for a parameter that is in no group of the optimizer."""
    for _, parameter in named:
        if parameter not in known:
            raise torch_host.UNKNOWN_PARAMETER.error(
                owner=OWNER, got=list(parameter.shape)
            )
