"""Row clipping as a citizen of Keras: fit, files, layers, sparse gradients, strict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3
from lockstep import keras3 as ls
from lockstep.errors import UnsupportedError
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


def test_an_unknown_path_is_answered_with_the_nearest() -> None:
    w = keras.Variable([3.0], name="table")
    opt = VariableClippingOptimizer(keras.optimizers.SGD(), {"tabel": [0]}, 1)
    with pytest.raises(ValueError, match=r"got 'tabel'; did you mean 'table'\?"):
        opt.build([w])
    assert not opt.inner_optimizer.built


# Keras turns a variable into an array as NumPy 2 does not like it.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)

X = np.eye(4, 3, dtype=np.float32)
Y = X[:, :1]


def layers() -> list[Any]:
    return [keras.layers.Dense(3, name="first"), keras.layers.Dense(1, name="second")]


def functional() -> keras.Model:
    inputs = keras.Input([3])
    first, second = layers()
    return keras.Model(inputs, second(first(inputs)), name="net")


def sequential_with_input() -> keras.Model:
    return keras.Sequential([keras.layers.Input([3]), *layers()], name="net")


def sequential_without_input() -> keras.Model:
    return keras.Sequential(layers(), name="net")


@keras.saving.register_keras_serializable(package="lockstep.tests")
class Subclassed(keras.Model):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.first, self.second = layers()

    def call(self, inputs: Any) -> Any:
        return self.second(self.first(inputs))


def twins() -> keras.Model:
    """Return a model of two others, whose layers have the same names."""
    inputs = values = keras.Input([3])
    for name in ("left", "right"):
        part = [keras.layers.Input([3]), keras.layers.Dense(3, name="first")]
        values = keras.Sequential(part, name=name)(values)
    return keras.Model(inputs, keras.layers.Dense(1, name="head")(values), name="net")


KINDS: dict[str, tuple[Callable[[], keras.Model], list[str]]] = {
    "functional": (functional, ["first/kernel"]),
    "sequential with input": (sequential_with_input, ["net/first/kernel"]),
    "sequential without": (sequential_without_input, ["net/first/kernel"]),
    "subclassed": (lambda: Subclassed(name="net"), ["net/first/kernel"]),
    "the left twin": (twins, ["left/first/kernel"]),
    "the right twin": (twins, ["right/first/kernel"]),
    "both twins": (twins, ["right/first/kernel", "left/first/kernel"]),
}


def kernels_of(model: keras.Model) -> list[keras.Variable]:
    return [v for v in model.trainable_variables if v.name == "kernel"]


def is_clipped(kernel: keras.Variable) -> bool:
    return bool((np.linalg.norm(kernel.numpy(), axis=1) < 1.01).all())


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
def test_models_of_every_kind_are_loaded_and_clipped_as_before(
    kind: str, tmp_path: Path
) -> None:
    make, listed = KINDS[kind]
    model = make()
    model(X)
    sgd = keras.optimizers.SGD(2.0**-10)
    axes = {path: [1] for path in listed}
    model.compile(keras3.VariableClippingOptimizer(sgd, axes, 1.0), "mse")
    expected = [v.path in listed for v in kernels_of(model)]
    model.fit(X, Y, verbose=0)
    for generation in "ab":
        model.save(tmp_path / f"{generation}.keras")
        model = keras.models.load_model(tmp_path / f"{generation}.keras")
        for kernel in kernels_of(model):
            kernel.assign(kernel + 3)
        variables = model.trainable_variables
        model.optimizer.apply([tf.zeros(v.shape) for v in variables], variables)
        assert list(map(is_clipped, kernels_of(model))) == expected


def optimizer(listed: list[str]) -> Any:
    sgd = keras.optimizers.SGD()
    axes = {path: [0] for path in listed}
    return keras3.VariableClippingOptimizer(sgd, axes, 1.0)


def variable(path: str) -> keras.Variable:
    *scopes, name = path.split("/")
    made = keras.Variable([4.0], name=name)
    made._path = "/".join([*scopes, name])
    return made


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("net/layer/kernel", ["layer/kernel", "kernel"]),
        ("layer/kernel", ["net/layer/kernel", "other/layer/kernel"]),
        ("kernel", ["a/kernel", "b/kernel"]),
    ],
)
def test_an_ambiguous_ending_is_an_error(path: str, known: list[str]) -> None:
    with pytest.raises(UnsupportedError):
        optimizer([path]).build([variable(name) for name in known])


def test_an_exact_path_goes_before_an_ending() -> None:
    both = [variable("net/layer/kernel"), variable("layer/kernel")]
    opt = optimizer(["layer/kernel"])
    opt.build(both)
    opt.apply([tf.zeros([1])] * 2, both)
    assert [v.numpy().tolist() for v in both] == [[4.0], [1.0]]


def test_places_stay_in_the_configuration_of_what_is_not_built() -> None:
    opt = optimizer(["left/kernel"])
    opt.build([variable("right/kernel"), variable("left/kernel")])
    config = opt.get_config()
    assert config["positions"] == {"left/kernel": 1}
    again = type(opt).from_config(config)
    assert again.get_config() == config
    loaded = [variable("kernel"), variable("kernel")]
    again.apply([tf.zeros([1])] * 2, loaded)
    assert [v.numpy().tolist() for v in loaded] == [[4.0], [1.0]]


ROWS = np.array([[3.0, 4.0], [0.25, 0.5]], np.float32)


def tables() -> list[keras.Variable]:
    return [keras.Variable(ROWS, name=name) for name in ("near", "far")]


def test_each_table_may_have_a_norm_of_its_own() -> None:
    near, far = tables()
    dims = {"near": [1], far.value.ref(): [1]}
    norms = {far.value.ref(): 10.0, "near": 2.5}
    optimizer = ls.VariableClippingOptimizer(keras.optimizers.SGD(0.5), dims, norms)
    zero = tf.zeros([2, 2])
    optimizer.apply([zero, zero], [near, far])
    assert near.numpy().tolist() == [[1.5, 2.0], [0.25, 0.5]]
    assert far.numpy().tolist() == ROWS.tolist()
    assert optimizer.get_config()["max_norm"] == {"near": 2.5, "far": 10.0}
    again = ls.VariableClippingOptimizer.from_config(optimizer.get_config())
    near, far = tables()
    again.apply([zero, zero], [near, far])
    assert near.numpy()[0].tolist() == [1.5, 2.0] and far.numpy()[0, 0] == 3.0
