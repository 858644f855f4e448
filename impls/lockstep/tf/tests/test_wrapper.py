"""Laws that every wrapper of v1 optimizers keeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep import tf as ls
from lockstep.interface import NO_EAGER_STEP
from lockstep.tests.wrappers import Layer, Parts, alone
from lockstep.tf import strict

v1 = tf.compat.v1
INF = float("inf")
ONES = tf.ones([2])
Make = Callable[[Any, list[Any]], Any]


def agn(opt: Any, variables: list[Any]) -> Any:
    getter = ls.AGNCustomGetter("/cpu:0")
    getter(variables)
    return ls.AGNOptimizer(opt, 1, getter, communication_period=2)


def around(layer: Layer, opt: Any, variables: list[Any]) -> Any:
    """Return a wrapper of the list that all tests read."""
    return layer(Parts(ls, opt, {w.ref(): [0] for w in variables}))


WRAPPERS: dict[str, Make] = {
    **{name: partial(around, layer) for name, layer in alone(ls).items()},
    "agn": agn,
}
SCALING = ["dynamic", "masters-dynamic"]
each_wrapper = pytest.mark.parametrize("name", WRAPPERS)
each_scaling = pytest.mark.parametrize("name", SCALING)


def momentum() -> Any:
    return ls.MomentumOptimizer(0.125, 0.5)


class TwoSteps(v1.train.MomentumOptimizer):
    """An optimizer with a second method that updates variables, and a setting."""

    radius = 0.5

    def first_step(self) -> None:
        """Move the weights, as SAM does."""


@each_wrapper
def test_attributes_are_forwarded_but_no_methods_that_update(name: str) -> None:
    w = tf.Variable([1.0])
    optimizer = WRAPPERS[name](TwoSteps(0.25, 0.5), [w])
    outer = ls.MultitaskOptimizerWrapper(optimizer)
    for each in (optimizer, outer):
        assert each.radius == 0.5 and each._learning_rate == 0.25
        assert not hasattr(each, "first_step")
        with pytest.raises(AttributeError, match="call it on base_optimizer"):
            each.first_step()
        with pytest.raises(AttributeError, match=f"{type(each).__name__}.*'typo'"):
            _ = each.typo


@each_wrapper
def test_slots_and_keras_variables_reach_through(name: str) -> None:
    keras = pytest.importorskip("keras", reason="needs Keras")
    variable = keras.Variable(np.float32([1, 2]), name="w")
    optimizer = WRAPPERS[name](momentum(), [variable.value])
    pairs = optimizer.compute_gradients(
        lambda: variable.value * 3, [variable], grad_loss=tf.constant([2.0, 0.5])
    )
    assert pairs[0][0].numpy().tolist() == [6.0, 1.5]
    optimizer.apply_gradients([(pairs[0][0], variable)])
    assert "momentum" in optimizer.get_slot_names()
    slot = optimizer.get_slot(variable, "momentum").numpy()
    assert slot[0] == 4 * slot[1] != 0  # As the gradient, times any factor.


@each_scaling
def test_methods_of_a_wrapper_inside_are_forwarded(name: str) -> None:
    outer = ls.MultitaskOptimizerWrapper(WRAPPERS[name](momentum(), []))
    assert float(outer.scale_loss(tf.ones([]))) == 4.0


# -- refusals --------------------------------------------------------------------------

PAIRS: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "no list": (lambda w: 3, errors.MalformedPairsError),
    "an empty list": (lambda w: [], errors.NoGradientsError),
    "all absent": (lambda w: [(None, w)], errors.NoGradientsError),
    "no pair": (lambda w: [(ONES, w, 1)], errors.MalformedPairsError),
    "swapped": (lambda w: [(w, ONES)], errors.MalformedPairsError),
    "no gradient": (lambda w: [(object(), w)], errors.MalformedPairsError),
    "a shape": (lambda w: [(tf.ones([3]), w)], errors.ShapeError),
    "a dtype": (lambda w: [(tf.ones([2], tf.float64), w)], errors.DtypeError),
    "large rows": (
        lambda w: [(tf.IndexedSlices(tf.ones([1, 3]), [0]), w)],
        errors.ShapeError,
    ),
}


@pytest.mark.parametrize("case", PAIRS)
@each_wrapper
def test_bad_pairs_are_refused_and_change_nothing(name: str, case: str) -> None:
    make, error = PAIRS[case]
    u, w = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
    counter = tf.Variable(0)
    optimizer = WRAPPERS[name](momentum(), [u, w])
    optimizer.create_slots([u, w])
    before = [v.numpy().tolist() for v in (u, w, *optimizer.variables())]
    pairs = make(w)
    if case not in ("no list", "an empty list", "all absent"):
        pairs = [(ONES, u), *pairs]
    with pytest.raises(error):
        optimizer.apply_gradients(pairs, global_step=counter)
    assert [v.numpy().tolist() for v in (u, w, *optimizer.variables())] == before
    assert counter.numpy() == 0 and not optimizer.last_step.applied


COUNTERS: dict[str, Callable[[], Any]] = {
    "a number": lambda: 3,
    "a tensor": lambda: tf.constant(1),
    "a vector": lambda: tf.Variable([1, 2]),
    "a float": lambda: tf.Variable(1.5),
}


@pytest.mark.parametrize("counter", COUNTERS)
@each_wrapper
def test_what_cannot_count_steps_is_refused(name: str, counter: str) -> None:
    w = tf.Variable([1.0, 2.0])
    optimizer = WRAPPERS[name](momentum(), [w])
    with pytest.raises(errors.DtypeError):
        optimizer.apply_gradients([(ONES, w)], global_step=COUNTERS[counter]())
    assert w.numpy().tolist() == [1.0, 2.0]


def test_strict_counts_with_a_float_as_the_original() -> None:
    w, counter = tf.Variable([1.0, 2.0]), tf.Variable(1.5)
    optimizer = strict.MultitaskOptimizerWrapper(momentum())
    optimizer.apply_gradients([(ONES, w)], global_step=counter)
    assert counter.numpy() == 2.5


CALLS: dict[str, tuple[Callable[[Any, Any], Any], type[Exception]]] = {
    "a tensor": (lambda o, w: o.minimize(tf.constant(1.0), None, [w]), RuntimeError),
    "a name": (lambda o, w: o.minimize(lambda: w * w, None, ["w"]), ValueError),
    "a number": (lambda o, w: o.minimize(lambda: w * w, None, 3), TypeError),
    "no slots": (lambda o, w: o.create_slots(None), TypeError),
}


@pytest.mark.parametrize("call", CALLS)
@each_wrapper
def test_what_cannot_be_differentiated_is_refused(name: str, call: str) -> None:
    wrong, error = CALLS[call]
    w = tf.Variable([1.0, 2.0])
    with pytest.raises(error) as caught:
        wrong(WRAPPERS[name](momentum(), [w]), w)
    assert isinstance(caught.value, errors.LockstepError)
    assert w.numpy().tolist() == [1.0, 2.0]


def keras_adam() -> Any:
    return pytest.importorskip("keras", reason="needs Keras").optimizers.Adam()


@pytest.mark.parametrize(
    "wrong", [lambda: 3, lambda: None, lambda: v1.train.AdamOptimizer, keras_adam]
)
@each_wrapper
def test_what_is_no_optimizer_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(errors.NotAnOptimizerError):
        WRAPPERS[name](wrong(), [tf.Variable([1.0])])


def test_the_keyword_strict_gives_the_strict_class() -> None:
    optimizer = ls.MultitaskOptimizerWrapper(momentum(), strict=True)
    assert type(optimizer) is strict.MultitaskOptimizerWrapper and optimizer.strict

    class Own(ls.MultitaskOptimizerWrapper):
        """A user's own class."""

    with pytest.raises(errors.UnsupportedError, match=r"strict\.MultitaskOptimizer"):
        Own(momentum(), strict=True)
    with pytest.raises(errors.NotAnOptimizerError):
        strict.MultitaskOptimizerWrapper(ls.MultitaskOptimizerWrapper(momentum()))


@each_wrapper
def test_gradients_are_not_applied_across_replicas(name: str) -> None:
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        w = tf.Variable([1.0, 2.0])
        optimizer = WRAPPERS[name](momentum(), [w])
        with pytest.raises(errors.CrossReplicaError):
            optimizer.apply_gradients([(ONES, w)])
    assert w.numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", ["rows", *SCALING])
def test_complex_gradients_are_refused(name: str) -> None:
    w = tf.Variable([1 + 1j], dtype=tf.complex64)
    with pytest.raises(errors.DtypeError):
        WRAPPERS[name](momentum(), [w]).apply_gradients([(w * 1, w)])
    assert w.numpy().tolist() == [1 + 1j]


@pytest.mark.parametrize("names", [ls, strict], ids=["default", "strict"])
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
def test_complex_variables_are_trained_and_skipped(names: Any, traced: bool) -> None:
    first, second = (tf.Variable([1 + 1j], dtype=tf.complex64) for _ in range(2))
    optimizer = names.MultitaskOptimizerWrapper(ls.GradientDescentOptimizer(1.0))

    def step(*gradients: tf.Tensor) -> None:
        optimizer.apply_gradients(zip(gradients, [first, second], strict=True))

    step = tf.function(step, autograph=False) if traced else step
    step(tf.constant([1j], tf.complex64), tf.constant([0j], tf.complex64))
    assert first.numpy().tolist() == [1]
    assert second.numpy().tolist() == [1 + 1j]


# -- steps -----------------------------------------------------------------------------


def trained(make: Make, order: int, traced: bool) -> list[bytes]:
    """Return the bits of weights and slots after three steps."""
    weights = [tf.Variable([0.5, -1.0], name=name) for name in ["w", "v"][::order]]
    optimizer = make(ls.AdamOptimizer(0.125), weights)

    def step(factor: Any) -> None:
        def loss() -> Any:
            terms = [tf.reduce_sum(weight * weight) for weight in weights]
            return factor * tf.add_n(terms[::order])

        optimizer.minimize(loss, var_list=weights)

    step = tf.function(step, autograph=False) if traced else step
    for factor in (1.0, 2.0, 0.5):
        step(tf.constant(factor))
    state = []
    for w in weights[::order]:
        state += [w, optimizer.get_slot(w, "m"), optimizer.get_slot(w, "v")]
    return [value.numpy().tobytes() for value in state]


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
@each_wrapper
def test_another_order_and_a_wrapper_around_change_no_bit(
    name: str, traced: bool
) -> None:
    expected = trained(WRAPPERS[name], 1, traced)
    assert trained(WRAPPERS[name], -1, traced) == expected

    def around(opt: Any, variables: list[Any]) -> Any:
        return ls.MultitaskOptimizerWrapper(WRAPPERS[name](opt, variables))

    if name != "agn" or not traced:  # AGN refuses it in a graph.
        assert trained(around, 1, traced) == expected


@each_wrapper
def test_a_checkpoint_in_the_middle_changes_no_bit(name: str, tmp_path: Path) -> None:
    def begin() -> tuple[Any, Any, tf.train.Checkpoint]:
        w = tf.Variable([1.0, 2.0], name="w")
        optimizer = WRAPPERS[name](ls.AdamOptimizer(0.125), [w])
        return w, optimizer, tf.train.Checkpoint(w=w, optimizer=optimizer)

    def go_on(w: Any, optimizer: Any) -> list[bytes]:
        for factor in (1.0, 0.0, 3.0):
            optimizer.apply_gradients([(tf.constant([factor, -factor]), w)])
        return [v.numpy().tobytes() for v in (w, *optimizer.variables())]

    w, optimizer, checkpoint = begin()
    go_on(w, optimizer)
    path = checkpoint.write(str(tmp_path / "saved"))
    again, other, restored = begin()
    restored.read(path)
    assert go_on(again, other) == go_on(w, optimizer)


@each_wrapper
def test_the_report_is_never_that_of_an_earlier_step(name: str) -> None:
    w = tf.Variable([1.0], name="w")
    optimizer = WRAPPERS[name](ls.GradientDescentOptimizer(0.5), [w])
    step = tf.function(
        lambda: optimizer.apply_gradients([(tf.ones([1]), w)]) and None, autograph=False
    )
    assert optimizer.last_step == NO_EAGER_STEP
    optimizer.apply_gradients([(tf.ones([1]), w)])
    assert optimizer.last_step.applied
    step()
    assert optimizer.last_step == NO_EAGER_STEP
    optimizer.apply_gradients([(tf.ones([1]), w)])
    assert optimizer.last_step.applied


@pytest.mark.parametrize("names", [ls, strict], ids=["default", "strict"])
def test_a_report_counts_gradients_that_are_not_finite(names: Any) -> None:
    weights = [tf.Variable([1.0, 2.0], name=name) for name in "abcd"]
    optimizer = names.MultitaskOptimizerWrapper(ls.GradientDescentOptimizer(0.5))
    gradients = [[0.0, 0.0], [1.0, np.nan], [np.inf, -np.inf], None]
    optimizer.apply_gradients(list(zip(gradients, weights, strict=True)))
    reason = "of 4 gradients 1 all zero, 1 absent, 2 not finite"
    assert optimizer.last_step == (True, reason, ("a", "d"))
    largest = np.float32(3e38)  # Its square overflows, and that of the least is 0.
    optimizer.apply_gradients([([largest, largest], weights[0])])
    assert optimizer.last_step.reason == "every gradient had a nonzero element"
    optimizer.apply_gradients([([1e-30, 0.0], weights[0])])
    assert optimizer.last_step.applied


@each_scaling
@pytest.mark.parametrize("mode", ["eager", "function", "xla", "graph"])
def test_skips_are_counted(name: str, mode: str) -> None:
    graph = tf.Graph() if mode == "graph" else tf.init_scope
    with graph.as_default() if mode == "graph" else graph():
        w = tf.Variable([1.0])
        optimizer = WRAPPERS[name](ls.GradientDescentOptimizer(0.5), [w])

        def step(value: Any) -> Any:
            return optimizer.apply_gradients([(tf.fill([1], value), w)])

        def counts() -> Any:
            return optimizer.skipped_steps, optimizer.skipped_in_a_row

        if mode == "graph":
            value = v1.placeholder(tf.float32, [])
            done, read = step(value), counts()
            session = v1.Session(graph=graph)
            session.run(v1.global_variables_initializer())
            run = lambda number: session.run(done, {value: number})  # noqa: E731
            counts = lambda: session.run(read)  # noqa: E731
        elif mode == "eager":
            run = step
        else:
            run = tf.function(
                lambda v: step(v) and None, autograph=False, jit_compile=mode == "xla"
            )
        expected = [(INF, 1, 1), (INF, 2, 2), (1.0, 2, 0), (INF, 3, 1), (1.0, 3, 0)]
        for number, *numbers in expected:
            run(number if mode == "graph" else tf.constant(number))
            assert [int(count) for count in counts()] == numbers


def test_reports_name_the_weights_of_the_model_on_every_level() -> None:
    w, head = (tf.Variable([1.0], dtype=tf.float16, name=n) for n in ("w", "head"))
    inner = ls.MultitaskOptimizerWrapper(ls.GradientDescentOptimizer(0.5))
    outer = ls.MixedPrecisionOptimizerWrapper(inner, 8.0)
    half = tf.float16
    outer.apply_gradients([(tf.zeros([1], half), w), (tf.ones([1], half), head)])
    assert outer.last_step.skipped == inner.last_step.skipped == ("w",)
