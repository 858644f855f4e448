"""Old code: sessions, reference variables, control flow v1, in other processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

DOCUMENTATION = """
if sys.argv[1] == "v1":
    v1.disable_v2_behavior()
else:
    v1.disable_eager_execution()
from lockstep.tf{module} import MultitaskOptimizerWrapper, clip_gradients_by_global_norm
learning_rate = 0.1
x = v1.placeholder(tf.float32, [2])
shared = v1.get_variable("shared", initializer=tf.constant([1.0, -2.0]))
head = v1.get_variable("head", initializer=tf.constant([3.0, 4.0]))
batch = v1.train.get_or_create_global_step()
loss = tf.reduce_sum(shared**2) + x[0] * tf.reduce_sum(head**2) + x[1]

momentum = tf.compat.v1.train.MomentumOptimizer(learning_rate, momentum=0.9)
opt = MultitaskOptimizerWrapper(momentum)
gradvars = opt.compute_gradients(loss)
clipped, _ = clip_gradients_by_global_norm(gradvars, 15.0)
train_op = opt.apply_gradients(clipped, global_step=batch)

assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [train_op]
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    session.run(train_op, {{x: [1.0, 0.0]}})
    state = [head, opt.get_slot(head, "momentum")]
    before = session.run([*state, shared])
    session.run(train_op, {{x: [0.0, 0.0]}})
    session.run(v1.get_collection(v1.GraphKeys.TRAIN_OP), {{x: [0.0, 0.0]}})
    after = session.run([*state, shared])
    assert before[0].tobytes() == after[0].tobytes() != np.float32([3, 4]).tobytes()
    assert before[1].tobytes() == after[1].tobytes()
    assert (before[2] != after[2]).all()
    assert session.run(batch) == 3
print(before[0].tolist())
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("module", ["", ".strict"], ids=["default", "strict"])
@pytest.mark.parametrize("behaviour", ["v2", "v1"])
def test_the_documentation_example_runs_with_its_import_changed(
    shared: Callable[..., str], behaviour: str, module: str
) -> None:
    printed = shared(behaviour, DOCUMENTATION.format(module=module), behaviour)
    assert printed == str([2.4000000953674316, 3.200000047683716])


AGAINST_REFERENCE = """
import lockstep.tf, lockstep.tf.strict
from harness.parity import drivers
from harness.parity.drivers.tf import make_driver
from lockstep.tf.tests.trajectory import (
    RULES, TOLERANCE, assert_close, draw, replay, rows
)

strict = sys.argv[1] == "strict"
names = lockstep.tf.strict if strict else lockstep.tf
kind = sys.argv[2]
values, *dense = draw(9, [(3,), (4, 2)], steps=5)
zero = [np.zeros_like(value) for value in values]
steps = [
    dense[0],
    [zero[0], dense[1][1]],
    zero,
    [dense[2][0], rows([2, 0, 2], dense[2][1][:3], 4, 2)],
    [dense[3][0], rows([1, 1], [[1, 2], [-1, -2]], 4, 2)],
    [zero[0], rows([], [], 4, 2)],
    [None, dense[4][1]],
]
driver = make_driver("v1", names)
make = driver.variable
driver.variable = lambda name, value: make(name, value, kind)
for rule in RULES:
    if strict and rule == "GradientDescent":
        continue  # its cancelling rows: see test_multitask
    oracle = drivers.load("reference", strict=strict)
    wrap = oracle.names.MultitaskOptimizerWrapper
    expected = replay(oracle, rule, wrap, values, steps)
    got = replay(driver, rule, names.MultitaskOptimizerWrapper, values, steps)
    assert_close(got, expected, within=TOLERANCE.get(rule, 0))
    bare = replay(driver, rule, lambda opt: opt, values, dense[:2])
    wrapped = replay(driver, rule, names.MultitaskOptimizerWrapper, values, dense[:2])
    assert_close(wrapped, bare, within=0)
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
    assert shared("v1", AGAINST_REFERENCE, mode, kind) == "same"


@pytest.mark.sample(1)
@pytest.mark.parametrize("strict", [False, True], ids=["default", "strict"])
def test_a_reference_variable_under_control_flow_v2_is_refused_in_a_sentence(
    shared: Callable[..., str], strict: bool
) -> None:
    script = """
    from lockstep.tf import MomentumOptimizer, MultitaskOptimizerWrapper
    with tf.Graph().as_default():
        w = v1.Variable([1.0], name="old", use_resource=False)
        strict = sys.argv[1] == "True"
        opt = MultitaskOptimizerWrapper(MomentumOptimizer(0.1, 0.9), strict=strict)
        try:
            opt.apply_gradients([(v1.placeholder(tf.float32, [1]), w)])
        except ValueError as error:
            print(error)
    """
    printed = shared("eager", script, strict)
    assert "a resource variable for 'old', because control flow v2 is on" in printed
    assert "tf.compat.v1.disable_control_flow_v2()" in printed


def test_strict_refuses_sparse_gradients_of_references_without_dense_shape(
    shared: Callable[..., str],
) -> None:
    script = """
    v1.disable_v2_behavior()
    from lockstep.tf import strict
    for resource in (True, False):
        w = v1.Variable([[1.0]], name="w", use_resource=resource)
        opt = strict.MultitaskOptimizerWrapper(strict.MomentumOptimizer(0.1, 0.9))
        try:
            opt.apply_gradients([(tf.IndexedSlices(tf.ones([1, 1]), [0]), w)])
            print("works")
        except ValueError as error:
            print(error)
    """
    resource, reference = shared("v1", script).splitlines()
    assert resource == "works"
    assert "with dense_shape for the reference variable 'w_1'" in reference
