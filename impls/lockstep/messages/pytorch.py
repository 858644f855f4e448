"""The words that only the PyTorch backend needs."""

from __future__ import annotations

from lockstep.messages.errors import (
    DtypeError,
    LossNotCallableError,
    MalformedPairsError,
    NotASequenceError,
    OutOfRangeError,
    UnknownNameError,
    UnsupportedError,
    sentence,
)

__all__ = [
    "asks_each_step",
    "dampened",
    "empty_name",
    "needs_closure",
    "not_a_counter",
    "not_a_gradient",
    "not_a_group",
    "not_a_parameter",
    "not_differentiable",
    "not_fused",
    "not_scalar",
    "number_first",
    "other_device",
    "repeated",
    "rows_only",
    "sharded",
    "unknown_parameter",
    "unsupported_dtype",
    "zero_rate",
]


def needs_closure(owner: str, opt: str) -> UnsupportedError:
    """An optimizer that evaluates its closure itself, several times a step."""
    expected = "an optimizer whose step() works on the gradients that are there"
    got = f"{opt}, which evaluates its closure several times a step"
    remedy = (
        "use it by itself: each evaluation would need its own look at the gradients"
    )
    return UnsupportedError(sentence(owner, expected, got, remedy))


def not_a_group(owner: str, got: str) -> NotASequenceError:
    """What is no group of parameters: a TypeError."""
    expected = "a dict with 'params', a list of parameters"
    remedy = "pass {'params': [...]}, with other hyper-parameters beside it"
    return NotASequenceError(sentence(owner, expected, got, remedy))


def number_first(owner: str, got: object) -> NotASequenceError:
    """A number in place of the parameters: TensorFlow's order of arguments."""
    expected = "the parameters, or groups of them"
    remedy = "put model.parameters() first, and TensorFlow's arguments after it"
    text = sentence(f"{owner}: params", expected, repr(got), remedy)
    return NotASequenceError(text)


def sharded(owner: str) -> UnsupportedError:
    """A parameter of which each rank has a part, as ``fully_shard`` makes them."""
    expected = "parameters that are whole on each rank"
    got = "a DTensor, as fully_shard (FSDP2) makes it"
    remedy = "train in DistributedDataParallel, or with an optimizer of torch alone"
    return UnsupportedError(sentence(owner, expected, got, remedy))


def zero_rate(owner: str) -> OutOfRangeError:
    """Strict: rate 0, where the original fails.

    # Quirk: docs/differences.md#ftrl-zero-rate
    """
    remedy = "the original fails at rate 0; leave strict off to skip the step"
    return OutOfRangeError(sentence(owner, "learning_rate > 0", "0", remedy))


def empty_name(owner: str) -> OutOfRangeError:
    """An optimizer's name without a character."""
    remedy = "give a name, or None for the rule's"
    return OutOfRangeError(sentence(f"{owner}: name", "a name", "''", remedy))


def unsupported_dtype(owner: str, dtype: str) -> DtypeError:
    """A parameter that the rules of TF1 do not know."""
    remedy = "the rules of TF1 are for real numbers; use an optimizer of torch.optim"
    expected = "parameters of a real floating-point dtype"
    return DtypeError(sentence(owner, expected, dtype, remedy))


def not_a_gradient(owner: str, got: str, name: str) -> MalformedPairsError:
    """A gradient that is neither None nor a tensor."""
    remedy = "convert it with torch.as_tensor"
    got = f"{got} for {name!r}"
    return MalformedPairsError(sentence(owner, "a tensor or None", got, remedy))


def not_a_parameter(owner: str, got: str) -> MalformedPairsError:
    """The second of a pair is no tensor."""
    remedy = "put the gradient first and the parameter second"
    expected = "pairs (gradient, parameter)"
    return MalformedPairsError(sentence(owner, expected, got, remedy))


def swapped(owner: str) -> MalformedPairsError:
    """The first of a pair is a parameter, and the second is none."""
    remedy = "put the gradient first and the parameter second"
    expected, got = "pairs (gradient, parameter)", "a pair (parameter, tensor)"
    return MalformedPairsError(sentence(owner, expected, got, remedy))


def unknown_parameter(owner: str, shape: tuple[int, ...]) -> UnknownNameError:
    """A parameter that is in no group of the optimizer."""
    remedy = "add it with add_param_group first"
    expected = "parameters of this optimizer's groups"
    got = f"another of shape {list(shape)}"
    return UnknownNameError(sentence(owner, expected, got, remedy))


def repeated(owner: str, name: str) -> UnsupportedError:
    """A parameter that several pairs name."""
    remedy = "add its gradients up first"
    expected = "each parameter once"
    return UnsupportedError(sentence(owner, expected, f"{name!r} twice", remedy))


def other_device(
    owner: str, name: str, gradient: str, parameter: str
) -> UnsupportedError:
    """A gradient that is not where its parameter is."""
    expected = f"a gradient on {parameter} for {name!r}"
    remedy = "move it with gradient.to(parameter.device)"
    return UnsupportedError(sentence(owner, expected, gradient, remedy))


def rows_only(owner: str, name: str, sparse_dim: int) -> UnsupportedError:
    """A sparse gradient that names elements, not rows."""
    expected = f"a sparse gradient with one sparse dimension for {name!r}"
    remedy = "make it dense with gradient.to_dense()"
    return UnsupportedError(sentence(owner, expected, str(sparse_dim), remedy))


def not_a_counter(owner: str, got: str) -> DtypeError:
    """A ``global_step`` that cannot count."""
    expected = "global_step to be None or a 0-d integer tensor"
    remedy = "make one with torch.zeros((), dtype=torch.int64)"
    return DtypeError(sentence(owner, expected, got, remedy))


def not_differentiable(owner: str, got: str) -> LossNotCallableError:
    """A loss that is no tensor."""
    expected = "a loss tensor, or a callable that returns one"
    remedy = "pass the loss itself, or a function without arguments that computes it"
    return LossNotCallableError(sentence(f"{owner}: loss", expected, got, remedy))


def bad_grad_loss(owner: str, got: str) -> DtypeError:
    """A ``grad_loss`` that is no gradient of a loss."""
    remedy = "leave it out for 1"
    expected = "a number, a tensor or None"
    return DtypeError(sentence(f"{owner}: grad_loss", expected, got, remedy))


def not_a_closure(got: str) -> MalformedPairsError:
    """What was given to ``step`` is no function."""
    expected, remedy = "a function that computes the loss, or None", "call step()"
    return MalformedPairsError(sentence("step: closure", expected, got, remedy))


def not_a_module(owner: str, got: str) -> MalformedPairsError:
    """A model that is none."""
    expected, remedy = "a torch.nn.Module", "pass the model of the parameters"
    return MalformedPairsError(sentence(f"{owner}.as_module", expected, got, remedy))


def not_scalar(owner: str, shape: tuple[int, ...]) -> UnsupportedError:
    """A loss of several numbers without weights for them."""
    remedy = "sum it, or give grad_loss of the same shape"
    return UnsupportedError(sentence(owner, "a 0-d loss", str(list(shape)), remedy))


def not_fused(owner: str, got: str) -> UnsupportedError:
    """``capturable`` around an optimizer that the device cannot tell to skip."""
    expected = "a fused optimizer for capturable=True"
    remedy = "make it so, as in torch.optim.Adam(params, fused=True)"
    return UnsupportedError(sentence(owner, expected, f"{got} that is not", remedy))


def dampened(owner: str, dampening: float) -> UnsupportedError:
    """``capturable`` around momentum whose first step differs from the others."""
    expected = "momentum without dampening for capturable=True"
    remedy = "set dampening to 0, or leave capturable off"
    return UnsupportedError(sentence(owner, expected, f"{dampening:g}", remedy))


def asks_each_step(owner: str, option: str) -> UnsupportedError:
    """``capturable`` together with an option for which each step must be looked at."""
    expected = f"no {option} with capturable=True"
    remedy = "leave one of them out: it would wait for the device at each step"
    return UnsupportedError(sentence(owner, expected, option, remedy))
