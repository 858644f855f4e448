"""Workers of every backend push changes of weights to one center."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep import registry
from lockstep.errors import (
    DtypeError,
    GetterError,
    TrainingEndedError,
    UnsupportedError,
)
from lockstep.ray.tests.local_host import LocalHost
from lockstep.ray.tests.small_workers import (
    WORKERS,
    SmallWorker,
    remote_center,
)

ORDER = [0, 1, 1, 0, 0, 0, 1, 1, 0, 0]


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


def test_the_center_moves_as_that_of_one_process(backend: str, tmp_path: Path) -> None:
    """Crashes and lost replies change no bit."""
    host = LocalHost(tmp_path)
    ours = [worker(backend, host).start() for _ in range(2)]
    first = WORKERS[backend](None)
    theirs = [first, WORKERS[backend](first.getter.center)]
    for number, chosen in enumerate(ORDER):
        host.crash()
        host.lost = 1
        for team in (ours, theirs):
            team[chosen].step(gradients(number))
    for one, other in zip(ours, theirs, strict=True):
        assert one.value().tobytes() == other.value().tobytes()
    assert host.center is not None
    assert host.center.counters.rounds == 5


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


def test_a_worker_of_another_shape_is_refused(backend: str, tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    worker(backend, host)
    with pytest.raises(UnsupportedError, match=r"expected 'w' to be .*float32.* \[2\]"):
        worker(backend, host, np.zeros(3, np.float32))
    with pytest.raises(UnsupportedError, match=r"expected 'w' to be .*got .*float64"):
        worker(backend, host, np.zeros(2))


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


def test_after_the_end_a_round_is_refused(backend: str, tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    made = worker(backend, host).start()
    host.call("end")
    made.step(gradients(0))
    with pytest.raises(TrainingEndedError, match="stop this worker"):
        made.step(gradients(1))


def test_text_that_is_no_name_is_refused(backend: str) -> None:
    getter = registry.load(backend).AGNCustomGetter
    with pytest.raises(GetterError, match="expected 'ray://NAME' with a NAME of lett"):
        getter("cpu", center="ray://10.0.0.1:10001")


@pytest.mark.parametrize("name", ["keras3", "tf"])
def test_a_dtype_that_numpy_lacks_is_refused(name: str, tmp_path: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="needs TensorFlow")
    start = tensorflow.constant([1.0, 2.0], tensorflow.bfloat16)
    with pytest.raises(DtypeError, match="got bfloat16 for 'w'; train float32"):
        worker(require(name), LocalHost(tmp_path), start)


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
