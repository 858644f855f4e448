"""Row clipping as a citizen of Keras: fit, files, layers, sparse gradients, strict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3
from lockstep.keras3 import MultitaskOptimizerWrapper, VariableClippingOptimizer

IDS = np.array([[1, 1], [2, 5], [5, 1]], np.int32)
TARGETS = np.float32([[1], [-1], [2]])
VOCABULARY = 12345


def model(rows: int = 8, dtype: str | None = None) -> keras.Model:
    """Return a model of a table of embeddings with rows longer than 1."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,), dtype="int32")
    large = keras.initializers.RandomUniform(1, 2, seed=1)
    table = keras.layers.Embedding(rows, 3, large, name="table", dtype=dtype)
    flat = keras.layers.Flatten(dtype=dtype)(table(inputs))
    return keras.Model(inputs, keras.layers.Dense(1, name="head", dtype=dtype)(flat))


def clipping(names: Any = keras3, max_norm: float = 1.0) -> Any:
    sgd = keras.optimizers.SGD(2.0**-10)
    return keras3.VariableClippingOptimizer(sgd, {"table/embeddings": [1]}, max_norm)


def norms(table: Any) -> Any:
    return np.linalg.norm(np.asarray(table, np.float32), axis=-1)


def pairs(*entries: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    return [(None if g is None else tf.constant(g), v) for g, v in entries]


def rows_of(indices: list[int], values: Any, count: int) -> tf.IndexedSlices:
    shape = tf.constant([count, values.shape[1]], tf.int64)
    return tf.IndexedSlices(
        tf.constant(values, tf.float32), tf.constant(indices, tf.int64), shape
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ["eager", "graph", "jit"])
def test_fit_clips_the_rows_of_the_batch(way: str) -> None:
    trained = model()
    before = trained.get_layer("table").embeddings.numpy()
    options = {"run_eagerly": way == "eager", "jit_compile": way == "jit"}
    trained.compile(clipping(), "mse", **options)
    trained.fit(IDS, TARGETS, epochs=2, verbose=0)
    after = trained.get_layer("table").embeddings.numpy()
    others = [0, 3, 4, 6, 7]
    named = norms(after)[[1, 2, 5]]
    # Rounding of the norm and of one product; the second update may shorten a row.
    assert (named <= 1 + 1e-6).all()
    assert named == pytest.approx([1, 1, 1], rel=1e-2)
    assert after[others].tobytes() == before[others].tobytes()
    assert (norms(after)[others] > 1.5).all()


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
def test_half_precision_is_clipped_in_float32(policy: str) -> None:
    trained = model(dtype=policy)
    table = trained.get_layer("table").embeddings
    table.assign(table * 200)
    trained.compile(clipping(), "mse")
    trained.optimizer.apply(
        [tf.zeros(v.shape, v.dtype) for v in trained.trainable_variables],
        trained.trainable_variables,
    )
    assert table.dtype == ("float16" if policy == "float16" else "float32")
    # An element in float16 is rounded by up to 2^-11 of it.
    assert norms(table) == pytest.approx([1] * 8, rel=1e-3)


def test_a_configuration_has_paths() -> None:
    a, b = keras.Variable([[1.0]], name="a"), keras.Variable([1.0], name="b")
    listed = {ref(a): [-1], "c": (0,), ref(b): []}
    opt = VariableClippingOptimizer(keras.optimizers.SGD(), listed, 2, name="Rows")
    config = opt.get_config()
    assert config["vars_to_clip_dims"] == {"a": [-1], "c": [0], "b": []}
    twin = VariableClippingOptimizer.from_config(config)
    assert twin.get_config() == config
    assert (twin.max_norm, twin.get_name()) == (2.0, "Rows")


def test_two_variables_of_one_path_cannot_go_into_a_configuration() -> None:
    twins = [keras.Variable([[3.0]], name="w") for _ in range(2)]
    sgd = keras.optimizers.SGD(0.0)
    opt = VariableClippingOptimizer(sgd, {key: [1] for key in map(ref, twins)}, 1)
    opt.apply([tf.ones([1, 1])] * 2, twins)
    assert [variable.numpy().item() for variable in twins] == [1, 1]
    with pytest.raises(ValueError):
        opt.get_config()
    opt = VariableClippingOptimizer(sgd, {"w": [1]}, 1)
    with pytest.raises(ValueError, match=r"use variable.value.ref\(\) as keys"):
        opt.build(twins)


def ref(variable: Any) -> Any:
    return variable.value.ref()


def test_an_absent_gradient_is_not_clipped_and_a_zero_one_is() -> None:
    a = keras.Variable([[3.0, 4.0]], name="a")
    b = keras.Variable([[3.0, 4.0]], name="b")
    opt = VariableClippingOptimizer(
        keras.optimizers.SGD(1.0), {"a": [1], "b": [0, 1]}, 1
    )
    with pytest.warns(UserWarning, match="Gradients do not exist for variables"):
        opt.apply_gradients(pairs((None, a), (np.zeros((1, 2), np.float32), b)))
    assert (norms(a), norms(b)) == (5, pytest.approx([1]))
    assert opt.last_step.skipped == ("a",)
    assert opt.last_step.reason == "of 2 gradients 1 absent; 1 of 1 rows clipped"


def test_a_row_that_is_named_several_times_is_counted_once() -> None:
    table = keras.Variable(np.full((4, 2), 3.0, np.float32), name="table")
    opt = VariableClippingOptimizer(keras.optimizers.SGD(0.0), {"table": [1]}, 1)
    rows = rows_of([2, 0, 2, 2, 0], np.ones((5, 2)), 4)
    opt.apply_gradients([(rows, table)])
    assert opt.last_step.reason.endswith("2 of 2 rows clipped")
    assert norms(table)[[0, 2]] == pytest.approx([1, 1])
    assert norms(table)[[1, 3]] == pytest.approx([18**0.5] * 2)


NESTS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "multitask(clip)": (lambda opt: MultitaskOptimizerWrapper(clip_w(opt)), False),
    "clip(multitask)": (lambda opt: clip_w(MultitaskOptimizerWrapper(opt)), True),
    "clip(clip)": (lambda opt: clip_w(clip_w(opt, [0], 0.5)), True),
    "multitask(clip(multitask))": (
        lambda opt: MultitaskOptimizerWrapper(clip_w(MultitaskOptimizerWrapper(opt))),
        False,
    ),
}


def clip_w(opt: Any, axes: Any = (1,), max_norm: float = 1) -> Any:
    return VariableClippingOptimizer(opt, {"w": axes}, max_norm)


@pytest.mark.sample(2)
@pytest.mark.parametrize("jit", [None, False, True], ids=["eager", "graph", "jit"])
@pytest.mark.parametrize("nest", NESTS)
def test_multitask_outside_leaves_a_zero_gradient_unclipped(
    nest: str, jit: bool | None
) -> None:
    wrap, is_clipped = NESTS[nest]
    w = keras.Variable([[3.0, 4.0], [0.5, 0.0]], name="w")
    other = keras.Variable([1.0], name="other")
    opt = wrap(keras.optimizers.Adam(0.1))
    opt.build([w, other])

    def step(gradient: Any) -> None:
        opt.apply([gradient, tf.ones([1])], [w, other])

    run = step if jit is None else tf.function(step, jit_compile=jit, autograph=False)
    run(tf.zeros([2, 2]))
    if not is_clipped:
        assert w.numpy().tolist() == [[3.0, 4.0], [0.5, 0.0]]
    else:
        assert (norms(w) < 1.0001).all()
    run(tf.ones([2, 2]))
    assert (norms(w) < 1.0001).all()
    assert opt.get_slot_names() == ["m", "v"]


def test_accumulated_gradients_are_clipped_where_they_are_applied() -> None:
    table = keras.Variable(np.full((4, 2), 3.0, np.float32), name="table")
    sgd = keras.optimizers.SGD(0.125, gradient_accumulation_steps=2)
    opt = VariableClippingOptimizer(sgd, {"table": [1]}, 1)
    opt.build([table])
    step = tf.function(lambda g: opt.apply([g], [table]), autograph=False)
    rows = [rows_of([k], np.ones((1, 2)), 4) for k in (0, 1)]
    step(rows[0])
    assert norms(table) == pytest.approx([18**0.5] * 4)
    step(rows[1])
    assert norms(table) == pytest.approx([1] * 4)


def operations(graph: Any) -> list[Any]:
    """Return the operations of a graph and of the functions that it calls."""
    found = list(graph.get_operations())
    for function in graph._functions.values():
        inner = getattr(function, "graph", None)
        found += operations(inner) if inner is not None else []
    return found


@pytest.mark.parametrize("nest", ["clip", "clip(clip)"])
def test_no_operation_of_a_sparse_step_is_as_large_as_the_vocabulary(nest: str) -> None:
    table = keras.Variable(tf.zeros([VOCABULARY, 3]), name="w")
    opt = keras3.VariableClippingOptimizer(keras.optimizers.SGD(0.1), {"w": [1]}, 1)
    if nest == "clip(clip)":
        opt = keras3.VariableClippingOptimizer(opt, {"w": [1]}, 1)
    opt.build([table])

    @tf.function(autograph=False)
    def step(values: Any, indices: Any) -> None:
        opt.apply_gradients([(tf.IndexedSlices(values, indices), table)])

    graph = step.get_concrete_function(
        tf.TensorSpec([None, 3]), tf.TensorSpec([None], tf.int64)
    ).graph
    types = {op.type for op in operations(graph)}
    assert "ResourceGather" in types
    assert types & {"ResourceScatterUpdate", "ResourceScatterSub"}
    for op in operations(graph):
        for tensor in [*op.inputs, *op.outputs]:
            size = tensor.shape.num_elements() if tensor.shape.rank else 0
            assert (size or 0) < VOCABULARY, f"{op.type} {op.name}"


@pytest.mark.parametrize("axes", [[0], [0, 1], [-2]])
def test_dimension_0_takes_the_whole_variable_with_a_warning(axes: list[int]) -> None:
    table = keras.Variable(np.full((4, 2), 3.0, np.float32), name="table")
    opt = VariableClippingOptimizer(keras.optimizers.SGD(0.0), {"table": axes}, 1)
    rows = rows_of([2], np.ones((1, 2)), 4)
    with pytest.warns(UserWarning, match="the whole variable is read and clipped"):
        opt.apply_gradients([(rows, table)])
    columns = np.linalg.norm(table.numpy(), axis=0)
    length = 1 if len(axes) == 1 else 0.5**0.5
    assert columns == pytest.approx([length] * 2)


def test_a_bad_axis_is_found_before_anything_changes() -> None:
    w = keras.Variable([3.0, 4.0], name="w")
    sgd = keras.optimizers.SGD(1.0)
    opt = keras3.VariableClippingOptimizer(sgd, {"w": [1]}, 1.0)
    with pytest.raises(ValueError, match="axes of 'w'"):
        opt.apply_gradients([(tf.ones([2]), w)])
    assert w.numpy().tolist() == [3, 4]
    assert int(sgd.iterations) == 0


@pytest.mark.parametrize(
    ("listed", "max_norm", "error"),
    [
        ({"w": 1}, 1, TypeError),
        ([("w", [1])], 1, TypeError),
        ({3: [1]}, 1, TypeError),
        ({"w": [1]}, 0, ValueError),
        ({"w": [1]}, float("nan"), ValueError),
        ({"w": [1]}, {"w": 0}, ValueError),
        ({"w": [1]}, {"v": 1}, ValueError),
    ],
)
def test_bad_input_is_refused(
    listed: Any, max_norm: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        VariableClippingOptimizer(keras.optimizers.SGD(), listed, max_norm)


def test_an_unknown_path_is_answered_with_the_nearest() -> None:
    w = keras.Variable([3.0], name="table")
    opt = VariableClippingOptimizer(keras.optimizers.SGD(), {"tabel": [0]}, 1)
    with pytest.raises(ValueError, match=r"got 'tabel'; did you mean 'table'\?"):
        opt.build([w])
    assert not opt.inner_optimizer.built
