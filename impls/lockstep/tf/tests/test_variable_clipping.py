"""Row clipping: laws in every execution mode, stacks, sessions and bad input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.parity import drivers
from lockstep import errors
from lockstep import tf as lockstep_tf
from lockstep.interface import NO_EAGER_STEP, Rows
from lockstep.tf import (
    MomentumOptimizer,
    VariableClippingOptimizer,
)
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.shared.variable_clipping import clip_rows
from lockstep.tf.tests.trajectory import (
    RULES,
    TOLERANCE,
    assert_close,
    assert_same_bits,
    draw,
    replay,
    replay_listed,
    rows,
)

v1 = tf.compat.v1
Drivers = Callable[..., Any]
Wrap = Callable[[Any, list[Any]], Any]

VALUES, *DENSE = draw(5, [(3,), (4, 2), (2, 3, 2)], steps=4)
VALUES = [value * 2 for value in VALUES]
ZERO = [np.zeros_like(value) for value in VALUES]
TABLE = rows([2, 0], [[1, -2], [3, 0.5]], 4, 2)
TWICE = rows([2, 0, 2, 2], [[1, -2], [3, 0.5], [-0.25, 4], [0.5, 1]], 4, 2)
ONES = tf.ones([2, 2])


def clipping(names: Any, axes: Sequence[Any], max_norm: Any = 1.0) -> Wrap:
    """Clip every variable whose axes are not None."""

    def wrap(opt: Any, keys: list[Any]) -> Any:
        pairs = zip(keys, axes, strict=True)
        listed = {key: dims for key, dims in pairs if dims is not None}
        return names.VariableClippingOptimizer(opt, listed, max_norm)

    return wrap


def sparse_steps(*tables: Rows) -> list[list[Any]]:
    pairs = zip(DENSE, tables, strict=False)
    return [[dense[0], table, dense[2]] for dense, table in pairs]


def assert_as_reference(
    driver: Any, names: Any, rule: str, wrap: Callable[[Any], Wrap], *run: Any, within=0
) -> list[Any]:
    """Compare a trajectory with the reference's, under the same semantics."""
    oracle = drivers.load("reference", strict=names is lockstep_strict)
    got = replay_listed(driver, rule, wrap(names), *run)
    assert_close(got, replay_listed(oracle, rule, wrap(oracle.names), *run), within)
    return got


CASES: dict[str, tuple[list[Any], float, list[list[Any]]]] = {
    "rows": ([[0], [1], [1, 2]], 1.0, DENSE[:3]),
    "other axes": ([[], [0], [0]], 1.25, DENSE[:2]),
    "axes apart": ([None, [0, 1], [0, 2]], 1.25, DENSE[:2]),
    "negative axes": ([[-1], (-2, 1), [-3]], 1.25, DENSE[:2]),
    "absent": (
        [[0], [1], [2]],
        0.5,
        [[None, DENSE[0][1], None], [DENSE[1][0], None, ZERO[2]]],
    ),
    "sparse": ([[0], [1], [2]], 0.75, sparse_steps(TABLE, TWICE)),
    "sparse, dimension 0": ([None, [0], None], 0.75, sparse_steps(TABLE, TWICE)),
    "sparse, negative": ([[0], [-1], [2]], 0.75, sparse_steps(TABLE, TWICE)),
}
NESTS: dict[str, Callable[[Any], Wrap]] = {
    "clip(clip)": lambda n: (
        lambda opt, keys: clipping(n, [[0], [1], [2]], 0.7)(
            clipping(n, [None, [], [0]], 0.9)(opt, keys), keys
        )
    ),
    "clip(multitask)": lambda n: (
        lambda opt, keys: clipping(n, [[0], [1], [2]], 0.5)(
            n.MultitaskOptimizerWrapper(opt), keys
        )
    ),
    "multitask(clip)": lambda n: (
        lambda opt, keys: n.MultitaskOptimizerWrapper(
            clipping(n, [[0], [1], [2]], 0.5)(opt, keys)
        )
    ),
}
SOME_ZERO = [
    [ZERO[0], DENSE[0][1], ZERO[2]],
    [DENSE[2][0], ZERO[1], None],
    ZERO,
    [DENSE[3][0], TABLE, ZERO[2]],
    [ZERO[0], rows([1, 1], [[1, 2], [-1, -2]], 4, 2), DENSE[3][2]],
]


def deep(names: Any) -> Wrap:
    """Nest multitask(clip(multitask(clip)))."""
    inside = NESTS["multitask(clip)"](names)
    return lambda opt, keys: names.MultitaskOptimizerWrapper(
        clipping(names, [[0], None, None], 0.4)(inside(opt, keys), keys)
    )


@pytest.mark.filterwarnings("ignore:VariableClippingOptimizer:UserWarning")
@pytest.mark.sample(10)
@pytest.mark.parametrize("rule", ["Momentum", "Adam"])
@pytest.mark.parametrize("case", CASES)
def test_every_step_equals_the_reference(
    new_driver: Drivers, names: Any, case: str, rule: str
) -> None:
    axes, max_norm, steps = CASES[case]
    # Where axes are apart TensorFlow's kernel adds the elements in another order.
    within = max(TOLERANCE.get(rule, 0), case == "axes apart")
    run = lambda n: clipping(n, axes, max_norm), VALUES, steps
    assert_as_reference(new_driver(names), names, rule, *run, within=within)


@pytest.mark.sample(2)
@pytest.mark.parametrize("nest", [*NESTS, "deep"])
def test_stacks_equal_the_reference(new_driver: Drivers, names: Any, nest: str) -> None:
    if nest == "deep" and names is lockstep_strict:
        pytest.skip("the original's multitask wrapper does not nest")
    wrap = NESTS.get(nest, deep)
    driver = new_driver(names)
    assert_as_reference(driver, names, "Momentum", wrap, VALUES, SOME_ZERO)


def test_half_precision_equals_the_reference(new_driver: Drivers, names: Any) -> None:
    half = [np.array([[300, 400], [3, 4], [150, 150], [0.1, 0.2]], np.float16)]
    steps = [[np.full((4, 2), 0.5, np.float16)], [np.zeros((4, 2), np.float16)]]
    run = lambda n: clipping(n, [[1]], 2.0), half, steps
    got = assert_as_reference(new_driver(names), names, "GradientDescent", *run)
    survives = np.abs(got[-1].variables[0][0]).max() > 1
    assert survives == (names is lockstep_tf), "the original loses the first row"


def test_below_the_norm_it_is_the_bare_optimizer_to_the_bit(
    new_driver: Drivers,
) -> None:
    steps = [*DENSE[:2], *sparse_steps(TWICE)]
    wrap = clipping(lockstep_tf, [[0], [1], [1, 2]], 100.0 / 3)
    got = replay_listed(new_driver(), "Adam", wrap, VALUES, steps)
    assert_same_bits(got, replay(new_driver(), "Adam", lambda opt: opt, VALUES, steps))


def test_rows_that_stay_keep_their_bits() -> None:
    odd = np.float32([[1e-40, -0.0], [-1e-42, 0.3], [np.inf, 1], [np.nan, 1], [3, 4]])
    clipped, too_large = clip_rows(tf.constant(odd), [1], 1.0 / 3)
    assert clipped[:2].numpy().tobytes() == odd[:2].tobytes()
    assert too_large[:, 0].numpy().tolist() == [False, False, True, True, True]
    assert np.isnan(clipped[2, 0]) and clipped[2, 1] == 0
    assert np.isnan(clipped[3]).all()


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_clipped_rows_are_at_most_the_limit_and_stay(dtype: tf.DType) -> None:
    random = np.random.default_rng(0)
    values = tf.constant(random.normal(size=(2000, 3)) * 4, dtype)
    clipped, too_large = clip_rows(values, [1], 1 / 3)
    limit = float(tf.constant(1 / 3, tf.float32 if dtype.size < 4 else dtype))
    norms = np.linalg.norm(clipped.numpy().astype(np.float64), axis=1)
    assert np.all(too_large) and (norms <= limit).all()
    assert np.array_equal(clip_rows(clipped, [1], 1 / 3)[0], clipped)


def test_no_rows_clip_nothing(new_driver: Drivers, names: Any) -> None:
    wrap, steps = clipping(names, [[1]], 0.1), [[rows([], [], 4, 2)]]
    (got,) = replay_listed(new_driver(names), "Momentum", wrap, VALUES[1:2], steps)
    assert got.variables[0].tobytes() == VALUES[1].tobytes()
    assert got.global_step == 1


def test_strict_clips_nothing_after_a_one_shot_iterator(
    new_driver: Drivers, names: Any
) -> None:
    driver = new_driver(names)
    w = driver.variable("w", np.float32([3, 4]))
    opt = clipping(names, [[0]])(names.GradientDescentOptimizer(0.5), [w.ref()])
    step = driver.compile(lambda g: opt.apply_gradients(iter([(g[0], w)])))
    step([np.float32([0, 0])])
    norm = 1.0 if names is lockstep_tf else 5.0
    assert np.linalg.norm(driver.read(w)) == pytest.approx(norm)


def test_dimension_0_is_warned_about(names: Any) -> None:
    w = tf.Variable(ONES)
    opt = clipping(names, [[0]])(names.GradientDescentOptimizer(0.5), [w.ref()])
    with pytest.warns(UserWarning, match="the whole variable is read and clipped"):
        opt.apply_gradients([(tf.IndexedSlices(ONES[:1], tf.constant([1])), w)])


def test_limits_may_be_tensors_variables_or_one_for_each_variable(names: Any) -> None:
    w = tf.Variable([3.0, 4.0])
    sgd, key = names.GradientDescentOptimizer(0.5), w.ref()
    # Strict takes, as the original, what has the dtype of the variable.
    limit = tf.Variable(1.0, dtype=tf.float64 if names is lockstep_tf else tf.float32)
    for max_norm in (4.0, tf.constant(2.0), limit, {key: 0.5}):
        if not (isinstance(max_norm, dict) and names is lockstep_strict):
            opt = names.VariableClippingOptimizer(sgd, {key: [0]}, max_norm)
            opt.apply_gradients([(tf.zeros([2]), w)])
            largest = max_norm.get(key) if isinstance(max_norm, dict) else max_norm
            assert np.linalg.norm(w) == pytest.approx(float(largest))


def test_an_eager_step_counts_the_rows_it_clipped(names: Any) -> None:
    a, b = tf.Variable([[3.0, 4], [0, 0.5]], name="a"), tf.Variable(1.0, name="b")
    base = names.GradientDescentOptimizer(1.0)
    opt = names.VariableClippingOptimizer(base, {a.ref(): [1]}, 1.0)
    assert opt.last_step == NO_EAGER_STEP
    opt.apply_gradients([(tf.zeros([2, 2]), a), (None, b)])
    assert (opt.last_step.applied, opt.last_step.skipped) == (True, ("b",))
    assert opt.last_step.reason == "of 2 gradients 1 absent; 1 of 2 rows clipped"


def test_a_jit_compiled_step_clips(names: Any) -> None:
    w = tf.Variable([[3.0, 4.0], [0.25, 0.5]])
    base = names.GradientDescentOptimizer(1.0)
    opt = names.VariableClippingOptimizer(base, {w.ref(): [1]}, 2.5)

    @tf.function(autograph=False, jit_compile=True)
    def step(gradient: tf.Tensor) -> None:
        opt.apply_gradients([(gradient, w)])

    step(tf.zeros([2, 2]))
    assert w.numpy() == pytest.approx(np.float32([[1.5, 2.0], [0.25, 0.5]]))


def operations(graph: tf.Graph) -> list[tf.Operation]:
    """Return the operations of a graph and of the functions that it calls."""
    found = list(graph.get_operations())
    for function in graph._functions.values():
        inner = getattr(function, "graph", None)
        found += operations(inner) if inner is not None else []
    return found


@pytest.mark.parametrize("outer", [False, True], ids=["clip", "multitask(clip)"])
def test_no_operation_of_a_sparse_step_is_as_large_as_the_vocabulary(
    names: Any, outer: bool
) -> None:
    vocabulary = 12345
    with tf.Graph().as_default() as graph:
        w = v1.Variable(tf.zeros([vocabulary, 3]), use_resource=True)
        opt = names.MomentumOptimizer(**RULES["Momentum"])
        opt._create_slots([w])
        before = len(graph.get_operations())
        opt = names.VariableClippingOptimizer(opt, {w: [1]}, 1.0)
        opt = names.MultitaskOptimizerWrapper(opt) if outer else opt
        values = v1.placeholder(tf.float32, [None, 3])
        indices = v1.placeholder(tf.int64, [None])
        opt.apply_gradients([(tf.IndexedSlices(values, indices), w)])
        made = operations(graph)[before:]
    assert {op.type for op in made} & {"ResourceScatterUpdate", "ResourceScatterSub"}
    for op in made:
        for tensor in [*op.inputs, *op.outputs]:
            size = tensor.shape.num_elements() if tensor.shape.rank else 0
            assert (size or 0) < vocabulary, f"{op.type} {op.name}"


OLD_CODE = """
if sys.argv[1] == "v1":
    v1.disable_v2_behavior()
else:
    v1.disable_eager_execution()
from lockstep.tf{module} import VariableClippingOptimizer
resource = sys.argv[2] == "resource"
table = v1.get_variable(
    "table", initializer=tf.fill([5, 2], 3.0), use_resource=resource
)
ids = v1.placeholder(tf.int64, [None])
step = v1.train.get_or_create_global_step()
loss = tf.reduce_sum(tf.gather(table, ids) ** 2)
adam = v1.train.AdamOptimizer(0.125)
opt = VariableClippingOptimizer(
    adam, {{table: [1]}}, 1.0, use_locking=True, colocate_clip_ops_with_vars=True
)
train_op = opt.minimize(loss, global_step=step)
assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [train_op]
assert train_op.name == "VariableClipping"
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    session.run(train_op, {{ids: [1, 4]}})
    norms = np.linalg.norm(session.run(table), axis=1)
    assert session.run(step) == 1
assert abs(norms[[1, 4]] - 1).max() < 1e-6, norms
assert (norms[[0, 2, 3]] == norms[0]).all() and norms[0] > 4, norms
print(*sorted(v.op.name for v in v1.global_variables()))
"""


@pytest.mark.parametrize(
    ("behaviour", "kind", "module"),
    [
        ("v1", "ref", ""),
        ("v1", "ref", ".strict"),
        ("v2", "ref", ""),
        ("v2", "resource", ".strict"),
    ],
)
def test_old_code_runs_with_its_import_changed_and_keeps_its_names(
    shared: Callable[..., str], behaviour: str, kind: str, module: str
) -> None:
    printed = shared(behaviour, OLD_CODE.format(module=module), behaviour, kind)
    powers = ["VariableClipping/beta1_power", "VariableClipping/beta2_power"]
    slots = ["table/Adam", "table/Adam_1"]
    assert printed.split() == [*powers, "global_step", "table", *slots]


W = tf.Variable([[3.0, 4.0], [0.3, 0.4]], name="w")
OTHER = tf.Variable([1.0], name="other")
BOTH: dict[str, tuple[dict[str, Any], type]] = {
    "a number": ({"opt": 3}, TypeError),
    "a class": ({"opt": MomentumOptimizer}, TypeError),
    "an optimizer with no method": ({"opt": object()}, TypeError),
    "an integer": ({"vars_to_clip_dims": {W.ref(): 1}}, TypeError),
    "no axes": ({"vars_to_clip_dims": {W.ref(): None}}, TypeError),
    "a bool as axis": ({"vars_to_clip_dims": {W.ref(): [True]}}, TypeError),
    "a name as key": ({"vars_to_clip_dims": {"w": [1]}}, TypeError),
}
BY_DEFAULT: dict[str, tuple[dict[str, Any], type]] = {
    f"max_norm {bad!r}": ({"max_norm": bad}, ValueError)
    for bad in (0, -1.0, float("nan"), float("inf"), "1", None, True)
} | {
    "an empty name": ({"name": ""}, ValueError),
    "a list": ({"vars_to_clip_dims": [W]}, TypeError),
    "no norm": ({"vars_to_clip_dims": {W.ref(): [1]}, "max_norm": {}}, ValueError),
    "a norm of another": ({"max_norm": {OTHER.ref(): 1.0}}, ValueError),
    "an axis too many": ({"vars_to_clip_dims": {W.ref(): [2]}}, ValueError),
    "an axis twice": ({"vars_to_clip_dims": {W.ref(): [1, -1]}}, ValueError),
}
BAD = [(name, strict) for name in BOTH for strict in (False, True)]


@pytest.mark.parametrize(
    ("case", "strict"), [*BAD, *[(name, False) for name in BY_DEFAULT]]
)
def test_what_cannot_work_is_refused_at_construction(case: str, strict: bool) -> None:
    given, error = (BOTH | BY_DEFAULT)[case]
    fine = {"opt": MomentumOptimizer(0.1, 0.9), "vars_to_clip_dims": {}, "max_norm": 1}
    with pytest.raises(error) as caught:
        VariableClippingOptimizer(**fine | given, strict=strict)
    assert isinstance(caught.value, errors.LockstepError)


def test_a_variable_listed_twice_is_refused() -> None:
    with tf.Graph().as_default():
        w = v1.Variable([1.0], name="w", use_resource=True)
        listed = {w: [0], w.ref(): [0]}
        with pytest.raises(errors.UnsupportedError, match="'w' twice"):
            VariableClippingOptimizer(MomentumOptimizer(0.1, 0.9), listed, 1.0)


def test_strict_wraps_whatever_has_the_methods() -> None:
    class Duck:
        def __init__(self, inner: Any) -> None:
            self.compute_gradients = inner.compute_gradients
            self.apply_gradients = inner.apply_gradients
            self.get_slot, self.get_slot_names = inner.get_slot, inner.get_slot_names

    w = tf.Variable([[3.0, 4.0]])
    duck = Duck(MomentumOptimizer(1.0, 0.9))
    opt = VariableClippingOptimizer(duck, {w.ref(): [1]}, 1.0, strict=True)
    opt.minimize(lambda: tf.reduce_sum(w), var_list=[w])
    assert np.linalg.norm(w) == pytest.approx(1)
    assert opt.get_slot(w, "momentum").numpy().tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_every_table_has_its_own_limit(sparse: bool) -> None:
    a, b = (tf.Variable([[3.0, 4.0], [6.0, 8.0]], name=name) for name in "ab")
    dims = {a.ref(): [1], b.ref(): [1]}
    opt = VariableClippingOptimizer(
        v1.train.GradientDescentOptimizer(1.0), dims, {a.ref(): 2.5, b.ref(): 7.5}
    )
    zero = tf.zeros([2, 2])
    rows = tf.IndexedSlices(zero, tf.constant([0, 1]))
    opt.apply_gradients([(rows if sparse else zero, w) for w in (a, b)])
    assert tf.norm(a, axis=1).numpy().tolist() == pytest.approx([2.5, 2.5], rel=1e-6)
    assert tf.norm(b, axis=1).numpy().tolist() == pytest.approx([5.0, 7.5], rel=1e-6)
