"""What old code reaches for by name: modules, base classes, names in checkpoints."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
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


class Own(strict.LossScale):
    """One whose factor is a variable, made as the original's base class offered."""

    def __init__(self) -> None:
        super().__init__()
        self._factor = self._add_weight("mine", dtype=tf.float32, initial_value=4.0)

    def __call__(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._factor)


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


@pytest.mark.parametrize("names", [strict, lockstep.tf], ids=["strict", "default"])
def test_a_variable_of_ones_own_scale_is_found_by_its_name(
    names: Any, tmp_path: Path
) -> None:
    scale, weight = Own(), tf.Variable([1.0, 2.0])
    base = names.GradientDescentOptimizer(0.5)
    optimizer = names.MixedPrecisionLossScaleOptimizer(base, scale)
    optimizer.minimize(lambda: tf.reduce_sum(weight * weight), var_list=[weight])
    assert weight.numpy().tolist() == [0.0, 0.0]
    path = tf.train.Checkpoint(optimizer=optimizer).save(str(tmp_path / "model"))
    keys = [name for name, _ in tf.train.list_variables(path)]
    assert "optimizer/loss_scale/mine/.ATTRIBUTES/VARIABLE_VALUE" in keys


def test_masters_of_variables_with_one_name_are_numbered_in_a_checkpoint(
    tmp_path: Path,
) -> None:
    same = [tf.Variable([1.0], dtype=tf.float16, name="w") for _ in range(3)]
    base = strict.GradientDescentOptimizer(0.1)
    wrapper = lockstep.tf.MixedPrecisionOptimizerWrapper(base)
    wrapper.apply_gradients([(tf.ones([1], tf.float16), w) for w in same])
    path = tf.train.Checkpoint(optimizer=wrapper).write(str(tmp_path / "saved"))
    keys = {key.split("/")[1] for key, _ in tf.train.list_variables(path)[1:]}
    stem = "FP32-master-copy.Sw"
    assert keys >= {stem, f"{stem}_1", f"{stem}_2"}


def test_private_names_that_old_code_reads_are_there() -> None:
    weight, base = tf.Variable([[1.0, 2.0]]), strict.AdamOptimizer(0.5)
    assert strict.MultitaskOptimizerWrapper(base)._opt is base
    clipping = strict.VariableClippingOptimizer(base, {weight.ref(): [1]}, 2.0)
    assert (clipping._opt, clipping._max_norm) == (base, 2.0)
    ((key, _),) = clipping._vars_to_clip_dims.items()
    assert key is weight
    assert clipping._vars_to_clip_dims[weight] == [1]
    scaling = strict.MixedPrecisionLossScaleOptimizer(base, 8.0)
    assert (scaling._optimizer, float(scaling._loss_scale())) == (base, 8.0)


def test_the_maps_of_a_getter_are_gone_through_like_dicts() -> None:
    getter = strict.AGNCustomGetter("/cpu:0")
    weight = tf.Variable([1.0], name="weight")
    getter([weight])
    ((key, center),) = getter._global_map.items()
    assert key is weight
    assert center is getter._global_map[weight]
    assert [id(key) for key in getter._grad_map.keys()] == [id(weight)]


@pytest.mark.parametrize("max_norm", ["x", np.float64(1.0)])
def test_strict_refuses_norms_of_rows_of_another_kind(max_norm: Any) -> None:
    with tf.Graph().as_default():
        weight = tf.compat.v1.get_variable("weight", [2], use_resource=True)
        if not isinstance(max_norm, str):
            max_norm = tf.constant(max_norm, tf.float64)
        base = strict.GradientDescentOptimizer(0.5)
        clipping = strict.VariableClippingOptimizer(base, {weight: [0]}, max_norm)
        with pytest.raises(TypeError):
            clipping.apply_gradients([(tf.ones([2]), weight)])
