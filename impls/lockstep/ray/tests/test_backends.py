"""Workers of every backend push changes of weights to one center."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep import registry
from lockstep.errors import (
    GetterError,
    UnsupportedError,
)
from lockstep.ray.tests.local_host import LocalHost
from lockstep.ray.tests.small_workers import (
    WORKERS,
    SmallWorker,
    remote_center,
)


@pytest.fixture(params=WORKERS)
def backend(request: pytest.FixtureRequest) -> str:
    """A backend that is installed."""
    return require(request.param)


def require(name: str) -> str:
    if not registry.installed(name):
        pytest.skip(f"{registry.find(name).framework} is not installed")
    return name


def worker(backend: str, host: LocalHost, *arguments: Any, **options: Any) -> Any:
    return WORKERS[backend](remote_center(backend, host), *arguments, **options)


def gradients(number: int) -> Any:
    return np.random.default_rng(number).normal(size=2).astype(np.float32)


def shared(host: LocalHost) -> list[float]:
    assert host.center is not None
    found: list[float] = host.center.present()["w"].tolist()
    return found


def train(workers: list[SmallWorker], order: list[int]) -> None:
    for number, chosen in enumerate(order):
        workers[chosen].step(gradients(number))


def test_workers_of_all_backends_share_one_center(tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    names = [require(name) for name in WORKERS]
    team = [worker(name, host).start() for name in names]
    first = WORKERS["pytorch"](None)
    center = first.getter.center
    twins = [first, *(WORKERS["pytorch"](center) for _ in names[1:])]
    order = [0, 1, 2, 0, 0, 2, 0, 1, 1, 1, 0, 0, 0, 0, 2, 2]
    train(team, order)
    train(twins, order)
    # Every backend subtracts and adds float32 numbers; products are rounded alike.
    np.testing.assert_allclose(shared(host), center.parameters["w"].detach(), rtol=1e-6)
    assert host.center is not None
    assert host.center.counters.rounds == 8


@pytest.mark.parametrize("name", ["keras3", "tf"])
def test_a_center_with_a_rule_takes_no_worker_of_another_backend(
    name: str, tmp_path: Path
) -> None:
    host = LocalHost(tmp_path)
    worker(require("pytorch"), host, commit="gradient")
    with pytest.raises(UnsupportedError, match="expected commit='gradient', as the fi"):
        worker(require(name), host)


def test_a_getter_without_variables_is_refused(tmp_path: Path) -> None:
    package = registry.load(require("tf"))
    getter = package.AGNCustomGetter("cpu", remote_center("tf", LocalHost(tmp_path)))
    rule = package.GradientDescentOptimizer(0.1)
    with pytest.raises(ValueError, match="at least one trainable variable, got none"):
        package.AGNOptimizer(rule, 1, getter, commit="delta")


def test_text_that_is_no_name_is_refused(backend: str) -> None:
    getter = registry.load(backend).AGNCustomGetter
    with pytest.raises(GetterError, match="expected 'ray://NAME' with a NAME of lett"):
        getter("cpu", center="ray://10.0.0.1:10001")


def test_a_step_in_a_graph_is_refused(tmp_path: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="needs TensorFlow")
    made = worker(require("keras3"), LocalHost(tmp_path)).start()
    with pytest.raises(UnsupportedError, match="expected an eager step for a center"):
        tensorflow.function(lambda: made.step(gradients(0)))()


def test_the_state_of_a_keras_worker_is_its_own(tmp_path: Path) -> None:
    made = worker(require("keras3"), LocalHost(tmp_path)).start()
    made.step(gradients(0))
    paths = [variable.path for variable in made.optimizer.variables]
    assert any("grad_variable" in path for path in paths)
    assert not any("global_center_variable" in path for path in paths)


def test_a_checkpoint_of_tensorflow_has_the_workers_part(tmp_path: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="needs TensorFlow")
    made = worker(require("tf"), LocalHost(tmp_path)).start()
    made.step(gradients(0))
    saved = tensorflow.train.Checkpoint(optimizer=made.optimizer)
    names = [n for n, _ in tensorflow.train.list_variables(saved.save(tmp_path / "c"))]
    assert any("grad_variable" in name for name in names)
    assert not any("custom_getter/center" in name for name in names)


def test_keras_fits_eagerly_with_the_callback(tmp_path: Path) -> None:
    require("keras3")
    import keras

    from lockstep import keras3

    host = LocalHost(tmp_path)
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(1, name="head")(inputs))
    getter = keras3.AGNCustomGetter("/cpu:0", remote_center("keras3", host))
    getter(model)
    rule = keras.optimizers.SGD(0.1)
    optimizer = keras3.AGNOptimizer(rule, 1, getter, 2, commit="delta")
    model.compile(optimizer, "mse", run_eagerly=True)
    hook = optimizer.make_session_run_hook(is_chief=True, task_index=0)
    x = np.ones((8, 2), np.float32)
    model.fit(x, x[:, :1], batch_size=2, verbose=0, callbacks=[hook])
    assert host.center is not None
    assert host.center.counters.rounds == 2
    assert host.calls[-1] == "leave"
