"""What old code reaches for by name: modules, base classes, names in checkpoints."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import lockstep.tf
from lockstep.tf import strict


class Halving(strict.LossScale):
    """A loss scale of a user's own, as tf.train.experimental let them write it."""

    def __init__(self) -> None:
        super().__init__()
        self.updates = 0

    def __call__(self) -> tf.Tensor:
        return tf.constant(4.0)

    def update(self, grads: Any) -> tuple[Any, Any]:
        self.updates += 1
        return tf.no_op(), True

    def get_config(self) -> dict[str, Any]:
        return {}


def test_single_policies_are_imported_by_name() -> None:
    module = importlib.import_module("lockstep.tf.strict.lr_policies")
    assert module is strict.lr_policies
    from lockstep.tf.strict.lr_policies import poly_decay

    assert poly_decay is strict.lr_policies.poly_decay


def test_a_loss_scale_of_ones_own_scales_and_is_not_moved_by_the_wrapper() -> None:
    scale, weight = Halving(), tf.Variable([1.0, 2.0])
    base = strict.GradientDescentOptimizer(0.5)
    optimizer = strict.MixedPrecisionLossScaleOptimizer(base, scale)
    optimizer.minimize(lambda: tf.reduce_sum(weight * weight), var_list=[weight])
    assert weight.numpy().tolist() == [0.0, 0.0]
    assert scale.updates == 0


@pytest.mark.parametrize(
    ("names", "tracked"),
    [(strict, "base_optimizer"), (lockstep.tf, "inner_optimizer")],
    ids=["strict", "default"],
)
def test_a_checkpoint_of_objects_names_the_wrapped_optimizer(
    names: Any, tracked: str, tmp_path: Path
) -> None:
    weight = tf.Variable([1.0, 2.0])
    base = names.MomentumOptimizer(0.5, 0.9)
    optimizer = names.MixedPrecisionLossScaleOptimizer(base, "dynamic")
    optimizer.minimize(lambda: tf.reduce_sum(weight * weight), var_list=[weight])
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, weight=weight)
    path = checkpoint.save(str(tmp_path / "model"))
    keys = [name for name, _ in tf.train.list_variables(path)]
    slot = f"weight/.OPTIMIZER_SLOT/optimizer/{tracked}/momentum/"
    assert [key for key in keys if "OPTIMIZER_SLOT" in key] == [
        f"{slot}.ATTRIBUTES/VARIABLE_VALUE"
    ]
    scale = "optimizer/loss_scale/current_loss_scale/.ATTRIBUTES/VARIABLE_VALUE"
    assert scale in keys
