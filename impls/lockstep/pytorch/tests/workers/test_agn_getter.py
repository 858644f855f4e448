"""What the getter takes, and which parameters join a center."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from lockstep.errors import GetterError
from lockstep.pytorch import AGNCustomGetter, AGNOptimizer


def weight(*shape: int) -> Parameter:
    return Parameter(torch.ones(shape or 2))


def filled(**named: Parameter) -> AGNCustomGetter:
    """Return a getter that filled a center; without names with one weight, w."""
    getter = AGNCustomGetter("cpu")
    getter((named or {"w": weight()}).items())
    return getter


def test_two_modules_of_one_worker_may_not_share_names() -> None:
    encoder, decoder = nn.Linear(2, 2), nn.Linear(2, 2)
    getter = AGNCustomGetter("cpu")
    getter(encoder)
    with pytest.raises(ValueError, match=r"got another 'weight'; pass one model that"):
        getter(decoder)
    assert set(getter._global_map) == set(encoder.parameters())
    assert len(getter.center.parameters) == 2


def test_a_prefix_keeps_two_modules_apart() -> None:
    encoder, decoder = nn.Linear(2, 2), nn.Linear(2, 2)
    getter = AGNCustomGetter("cpu")
    own = [
        *getter(encoder.named_parameters(prefix="encoder")),
        *getter(decoder.named_parameters(prefix="decoder")),
    ]
    before = [p.detach().clone() for p in own]
    AGNOptimizer(torch.optim.SGD(own, lr=0.1), 1, getter).get_init_op(0)
    assert all(torch.equal(a, b) for a, b in zip(own, before, strict=True))


def test_one_call_may_not_have_a_name_twice_either() -> None:
    getter = AGNCustomGetter("cpu")
    with pytest.raises(ValueError, match="expected one variable of each name"):
        getter([("w", weight()), ("w", weight())])
    assert not getter.center.parameters


def test_places_are_never_given_twice() -> None:
    a, b, c, frozen = weight(), weight(), weight(), weight()
    frozen.requires_grad_(False)
    getter = AGNCustomGetter("cpu")
    for given in ([frozen, a], [b], [b, c], [weight()]):
        getter(given)
    assert len(getter.center.parameters) == len(set(getter.names.values())) == 4


def test_a_worker_joins_only_with_names_that_the_center_has() -> None:
    first = filled(w=weight(), v=weight())
    second = AGNCustomGetter("cpu", center=first.center)
    with pytest.raises(
        ValueError, match="the center has, 'w', 'v', got 'x'; give each"
    ):
        second([("w", weight()), ("x", weight())])
    assert not second._global_map
    assert list(first.center.parameters) == ["w", "v"]
    second([("v", weight())])
    assert list(second.names.values()) == ["v"]


def test_nothing_joins_if_one_of_them_has_another_shape() -> None:
    first = filled(w=weight(), v=weight())
    second = AGNCustomGetter("cpu", center=first.center)
    with pytest.raises(ValueError, match=r"'v' to be torch\.float32 \[2\]"):
        second([("w", weight()), ("v", weight(3))])
    assert not second._global_map


def test_the_worker_that_filled_the_center_adds_and_others_follow() -> None:
    first = filled()
    second = AGNCustomGetter("cpu", center=first.center)
    second([("w", weight())])
    later = ("later", weight())
    with pytest.raises(ValueError, match="only the first worker adds names"):
        second([later])
    first([("later", weight())])
    second([later])
    assert second._global_map[later[1]] is first.center.parameters["later"]


def test_who_fills_a_center_is_who_comes_first_not_who_made_it() -> None:
    maker = AGNCustomGetter("cpu")
    other = AGNCustomGetter("cpu", center=maker.center)
    other([("w", weight())])
    other([("v", weight())])
    with pytest.raises(ValueError, match="got 'x'"):
        maker([("x", weight())])


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a getter for a center": (
        lambda: AGNCustomGetter("cpu", center=filled()),
        r"center: expected the center of another worker's getter, got AGNCustomGetter; "
        r"pass its attribute, center=getter\.center",
    ),
    "a word for a center": (lambda: AGNCustomGetter("cpu", center="c"), "got str"),
    "a device of TensorFlow": (
        lambda: AGNCustomGetter("/cpu:0"),
        "worker_device: expected a device such as 'cpu' or 'cuda:0', got '/cpu:0'",
    ),
    "no device": (lambda: AGNCustomGetter(None), "worker_device: .* got None"),
    "nothing": (lambda: AGNCustomGetter("cpu")(None), "got NoneType; pass what the"),
    "a word": (
        lambda: AGNCustomGetter("cpu")("w"),
        "a module, parameters or .* got str",
    ),
    "a dict": (
        lambda: AGNCustomGetter("cpu")({"w": weight()}),
        "got dict; pass its items or values",
    ),
    "a tensor": (
        lambda: AGNCustomGetter("cpu")(weight()),
        "got one Parameter; put it into a list",
    ),
    "an optimizer": (
        lambda: AGNCustomGetter("cpu")(torch.optim.SGD([weight()])),
        r"pairs \(name, parameter\), got SGD",
    ),
    "no parameters": (
        lambda: AGNCustomGetter("cpu")([None]),
        "got NoneType among them",
    ),
    "swapped pairs": (
        lambda: AGNCustomGetter("cpu")([(weight(), "w")]),
        "got tuple among them",
    ),
    "a module without shapes": (
        lambda: AGNCustomGetter("cpu")(nn.LazyLinear(2)),
        "got 'weight' without a shape; build the model first",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_getter_cannot_take_is_one_sentence(name: str) -> None:
    make, told = WRONG[name]
    with pytest.raises(GetterError, match=told):
        make()
