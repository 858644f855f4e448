"""Row clipping in old code, and in runs that stop and go on: in fresh processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

AGAINST_REFERENCE = """
import lockstep.tf, lockstep.tf.strict
from harness.parity import drivers
from harness.parity.drivers.tf import make_driver
from lockstep.tf.tests.clipping.models import VALUES, clipping
from lockstep.tf.tests.clipping.test_variable_clipping import CASES
from lockstep.tf.tests.clipping.test_variable_clipping_nesting import (
    DEEP_NESTS, NESTS, SOME_ZERO
)
from lockstep.tf.tests.trajectory import TOLERANCE, assert_close, replay_listed

kind, strict = sys.argv[1], sys.argv[2] == "strict"
names = lockstep.tf.strict if strict else lockstep.tf
oracle = drivers.load("reference", strict=strict)
driver = make_driver("v1", names)
make = driver.variable
driver.variable = lambda name, value: make(name, value, kind)

def compare(rule, wrap, steps, within):
    expected = replay_listed(oracle, rule, wrap(oracle.names), VALUES, steps)
    got = replay_listed(driver, rule, wrap(names), VALUES, steps)
    assert_close(got, expected, within)

for case, (axes, max_norm, steps) in CASES.items():
    for rule in ("GradientDescent", "Adam"):
        within = max(TOLERANCE.get(rule, 0), case == "axes apart")
        compare(rule, lambda n: clipping(n, axes, max_norm), steps, within)
for wrap in [*NESTS.values(), *([] if strict else DEEP_NESTS.values())]:
    compare("Momentum", wrap, SOME_ZERO, 0)
driver.close()
print("same")
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("ref", "default"),
        ("resource", "strict"),
        # Both kinds and both modes are above.
        pytest.param("ref", "strict", marks=pytest.mark.soak),
        pytest.param("resource", "default", marks=pytest.mark.soak),
    ],
)
def test_both_kinds_of_variables_equal_the_reference(
    shared: Callable[..., str], kind: str, mode: str
) -> None:
    assert shared("v1", AGAINST_REFERENCE, kind, mode) == "same"


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
    assert printed.split() == [
        *powers,
        "global_step",
        "table",
        "table/Adam",
        "table/Adam_1",
    ]


TRAIN = """
from lockstep.tf import (
    AdamOptimizer, MultitaskOptimizerWrapper, VariableClippingOptimizer
)
way, path, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
stop = 5
random = np.random.default_rng(3)
gradients = random.normal(size=(8, 3, 2)).astype(np.float32)
gradients[[2, 4, 5]] = 0
ids = random.integers(0, 6, (8, 3))
w = tf.Variable(tf.ones([6, 2]), name="w")
counter = tf.Variable(0, dtype=tf.int64, name="counter")
clip = VariableClippingOptimizer(AdamOptimizer(0.1), {w.ref(): [1]}, 0.5)
wrapper = MultitaskOptimizerWrapper(clip)
checkpoint = tf.train.Checkpoint(w=w, counter=counter, optimizer=wrapper)

def step(values, indices):
    slices = tf.IndexedSlices(values, indices)
    wrapper.apply_gradients([(slices, w)], global_step=counter)

step = tf.function(step, autograph=False) if way == "function" else step
if way == "saver":
    wrapper.create_slots([w])
    saver = v1.train.Saver([w, counter, *wrapper.variables()])
if first and way == "saver":
    saver.restore(None, path)
elif first:
    checkpoint.read(path).assert_existing_objects_matched()
for k in range(first, 8):
    if k == stop and not first:
        saver.save(None, path) if way == "saver" else checkpoint.write(path)
    step(tf.constant(gradients[k]), tf.constant(ids[k]))
slots = [wrapper.get_slot(w, name) for name in ("m", "v")]
state = [w, counter, *slots, *wrapper.variables()]
print(" ".join(np.asarray(part).tobytes().hex() for part in state))
"""


@pytest.mark.parametrize("way", ["function", "saver"])
def test_a_fresh_process_goes_on_to_the_bit(
    shared: Callable[..., str], tmp_path: Path, way: str
) -> None:
    whole = shared("eager, first", TRAIN, way, tmp_path / "stopped", 0)
    assert shared("eager, second", TRAIN, way, tmp_path / "stopped", 5) == whole
