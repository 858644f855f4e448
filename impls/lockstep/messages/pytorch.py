"""The errors that only the PyTorch backend raises."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.errors import (
    DtypeError,
    LossNotCallableError,
    MalformedPairsError,
    NotASequenceError,
    OutOfRangeError,
    Refusal,
    ShapeError,
    UnknownNameError,
    UnsupportedError,
    sentence,
)

NEEDS_CLOSURE = Refusal(
    UnsupportedError,
    "{owner}: expected an optimizer whose step() works on the gradients that are "
    "there, got {opt}, which evaluates its closure several times a step; "
    "use it by itself: each evaluation would need its own look at the gradients.",
)
NOT_A_GROUP = Refusal(
    NotASequenceError,
    "{owner}: expected a dict with 'params', a list of parameters, got {got}; "
    "pass {{'params': [...]}}, with other hyper-parameters beside it.",
)
NUMBER_FIRST = Refusal(
    NotASequenceError,
    "{owner}: params: expected the parameters, or groups of them, got {got!r}; "
    "put model.parameters() first, and TensorFlow's arguments after it.",
)
SHARDED = Refusal(
    UnsupportedError,
    "{owner}: expected parameters that are whole on each rank, "
    "got a DTensor, as fully_shard (FSDP2) makes it; "
    "train in DistributedDataParallel, or with an optimizer of torch alone.",
)
SHARDED_OPTION = Refusal(
    UnsupportedError,
    "{owner}: expected parameters that are whole on each rank for {option}, "
    "got a DTensor, as fully_shard (FSDP2) or tensor parallelism makes it; "
    "leave {option} out, or train in DistributedDataParallel.",
)
SHARDED_LOSS = Refusal(
    UnsupportedError,
    "{owner}: expected parameters that are whole on each rank, "
    "got a DTensor, as fully_shard (FSDP2) or tensor parallelism makes it; "
    "call loss.backward() and the optimizer's step(), which take DTensors.",
)
NOT_SPLIT = Refusal(
    UnsupportedError,
    "{owner}: expected a DTensor as the gradient of {name!r}, got a whole tensor; "
    "split it as the parameter is, with torch.distributed.tensor.distribute_tensor.",
)
EMPTY_NAME = Refusal(
    OutOfRangeError,
    "{owner}: name: expected a name, got ''; give a name, or None for the rule's.",
)
UNSUPPORTED_DTYPE = Refusal(
    DtypeError,
    "{owner}: expected parameters of a real floating-point dtype, got {dtype}; "
    "the rules of TF1 are for real numbers; use an optimizer of torch.optim.",
)
NOT_A_GRADIENT = Refusal(
    MalformedPairsError,
    "{owner}: expected a tensor or None, got {got} for {name!r}; "
    "convert it with torch.as_tensor.",
)
UNKNOWN_PARAMETER = Refusal(
    UnknownNameError,
    "{owner}: expected parameters of this optimizer's groups, "
    "got another of shape {got}; add it with add_param_group first.",
)
REPEATED = Refusal(
    UnsupportedError,
    "{owner}: expected each parameter once, got {name!r} twice; "
    "add its gradients up first.",
)
OTHER_DEVICE = Refusal(
    UnsupportedError,
    "{owner}: expected a gradient on {parameter} for {name!r}, got {gradient}; "
    "move it with gradient.to(parameter.device).",
)
ROWS_ONLY = Refusal(
    UnsupportedError,
    "{owner}: expected a sparse gradient with one sparse dimension for {name!r}, "
    "got {sparse_dim}; make it dense with gradient.to_dense().",
)
NOT_A_COUNTER = Refusal(
    DtypeError,
    "{owner}: expected global_step to be None or a 0-d integer tensor, got {got}; "
    "make one with torch.zeros((), dtype=torch.int64).",
)
NOT_DIFFERENTIABLE = Refusal(
    LossNotCallableError,
    "{owner}: loss: expected a loss tensor, or a callable that returns one, "
    "got {got}; "
    "pass the loss itself, or a function without arguments that computes it.",
)
BAD_GRAD_LOSS = Refusal(
    DtypeError,
    "{owner}: grad_loss: expected a number, a tensor or None, got {got!r}; "
    "leave it out for 1.",
)
NOT_A_CLOSURE = Refusal(
    MalformedPairsError,
    "step: closure: expected a function that computes the loss, or None, got {got!r}; "
    "call step().",
)
NOT_A_MODULE = Refusal(
    MalformedPairsError,
    "{owner}.as_module: expected a torch.nn.Module, got {got}; "
    "pass the model of the parameters.",
)
NOT_SCALAR = Refusal(
    UnsupportedError,
    "{owner}: expected a 0-d loss, got {got}; "
    "sum it, or give grad_loss of the same shape.",
)
COMPLEX_LOSS = Refusal(
    UnsupportedError,
    "{owner}: expected a real loss, got {dtype}; "
    "take its real part or its magnitude, or give grad_loss.",
)
GRAD_LOSS_SHAPE = Refusal(
    ShapeError,
    "{owner}: grad_loss: expected the shape {expected} of the loss, got {got}; "
    "give one number for each element of the loss, or one for all.",
)
DIFFERENTIABLE = Refusal(
    UnsupportedError,
    "{owner}: expected an optimizer with differentiable=False, got {got} with True; "
    "gradients are unscaled outside of autograd; use it without a loss scale.",
)
NOT_FUSED = Refusal(
    UnsupportedError,
    "{owner}: expected a fused optimizer for capturable=True, got {got} that is not; "
    "make it so, as in torch.optim.Adam(params, fused=True).",
)
DAMPENED = Refusal(
    UnsupportedError,
    "{owner}: expected momentum without dampening for capturable=True, "
    "got {dampening:g}; set dampening to 0, or leave capturable off.",
)
ASKS_EACH_STEP = Refusal(
    UnsupportedError,
    "{owner}: expected no {option} with capturable=True, got {option}; "
    "leave one of them out: it would wait for the device at each step.",
)
SHARE_MEMORY = Refusal(
    UnsupportedError,
    "MixedPrecisionOptimizerWrapper: expected memory of its own for each "
    "half-precision parameter, got two of shape {shape} in one place; "
    "their masters would overwrite each other; make them one parameter.",
)


def reentrant(owner: str, names: Sequence[str]) -> str:
    """Return the warning for parameters inside of a reentrant checkpoint."""
    expected = "torch.utils.checkpoint with use_reentrant=False"
    got = f"use_reentrant=True, and no gradient for {', '.join(names)}"
    remedy = "a reentrant checkpoint gives gradients in loss.backward() only"
    return sentence(owner, expected, got, remedy)
