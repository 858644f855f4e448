"""What is archived of a release: its checkpoints of every stack, and how it went on.

``python -m harness.composition.tests.archived write KIND FILE`` makes one archive with
the code that is here; ``read`` loads an archive of any release with this code, goes on,
and prints what differs as JSON: mode and stack -> sentences. ``few`` does it for few of
the stacks.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from harness.composition.layers import Model
from harness.composition.run import SHAPES, Run
from harness.composition.stacks import build, has_masters, skips
from harness.composition.tests.savers import SAVERS, BackendSaver, KerasSaver
from harness.composition.wrappers import FEW_STACKS, STACKS
from harness.parity.drivers.protocol import Worker
from lockstep.interface import Array
from lockstep.messages.errors import LockstepError

__all__ = ["KINDS", "MODES", "ROUNDED", "SAVED_AT"]

MODES = ("default", "strict")
SAVED_AT, END = 33, 41
"""Saved behind a skipped step, so that every counter is on its way."""
SKIPPED_IN_ALL = {"0.1.0": 1}
"""By release, in later ones 4: 0.1.0 counted only those in a row."""
ROUNDED = 1e-6
"""Since 0.2.0 row clipping writes the clipped row instead of w - (w - c), gradient
descent on Keras subtracts the occurrences of a row in turn, and NovoGrad on PyTorch
squares a norm instead of adding squares. From there on such stacks move by roundings,
about 1e-7 of their largest element a step."""

ESTIMATED = 1e-6
"""TensorFlow's Adagrad multiplies with a reciprocal square root that it refines from
the processor's estimate: on another model it rounds otherwise, about 1e-7 a step."""

OURS = ("patient", "clipped", "masters-dynamic", "masters-logmax", "agn-delta")
"""Layers with arguments that the originals did not have: not under strict."""
NOT_IN_GRAPHS = {"NovoGrad", "agn"}
"""Strict: the one reads gradients of another pattern, which are not fed; the other
leaves a worker's own slots out of a Saver."""

Values = dict[str, Array]


class FileSaver(KerasSaver):
    """A ``.keras`` file of a model that holds the three variables."""

    def start(self, stack: str) -> Run:
        import keras

        keras.backend.clear_session()
        run = object.__new__(Run)
        run.stack, run.driver = stack, self.driver()
        run.dtype = "float16" if has_masters(stack) else "float32"
        layer = three_variables()(run.dtype, name="three")
        run.model = keras.Sequential([keras.Input((1,)), layer])
        run.variables = run.model.trainable_variables
        getter = run.driver.names.AGNCustomGetter("/cpu:0")
        worker = Worker(run.variables, [], [], getter, contextlib.nullcontext)
        if "agn" in stack:
            getter(run.variables)
        run.optimizer = build(stack, run.driver, Model(run.variables, worker))
        run._step = run.driver.compile(run._apply)
        run.optimizer.build(run.variables)
        run.model.compile(run.optimizer)
        return run

    def save(self, run: Run, path: Path) -> None:
        run.model.save(path.with_suffix(".keras"))

    def restore(self, run: Run, path: Path) -> None:
        import keras

        run.model = keras.models.load_model(path.with_suffix(".keras"))
        run.variables = run.model.trainable_variables
        run.optimizer = run.model.optimizer


def three_variables() -> type:
    """Return the layer of the archived models, known to Keras under its name."""
    import keras

    @keras.saving.register_keras_serializable(package="archived")
    class ThreeVariables(keras.layers.Layer):
        def __init__(self, half: str, **options: Any) -> None:
            super().__init__(**options)
            self.half = half

        def build(self, shape: Any) -> None:
            dtypes = (self.half, self.half, "float32")
            for (name, shape), dtype in zip(SHAPES.items(), dtypes, strict=True):
                weight = self.add_weight(shape=shape, dtype=dtype, name=name)
                weight.assign(Run._initial(shape, dtype))

        def call(self, inputs: Any) -> Any:
            return inputs

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "half": self.half}

    return ThreeVariables


KINDS: dict[str, type[BackendSaver]] = {
    **{kind: SAVERS[kind] for kind in ("pytorch", "tf eager", "tf graph", "keras3")},
    "keras3 file": FileSaver,
}
"""The reference has no state of its own to save: it is pickled as a whole."""


def saver_of(kind: str, mode: str) -> BackendSaver:
    """Return how runs of this kind are saved, bound to the names of the mode."""
    saver = KINDS[kind]()
    saver.strict = mode == "strict"
    return saver


def values_of(saver: BackendSaver, run: Run) -> Values:
    """Return the variables and their slots."""
    found = {str(k): variable for k, variable in enumerate(run.variables)}
    for name in run.optimizer.get_slot_names():
        for number, variable in enumerate(run.variables):
            found[f"{name} {number}"] = run.optimizer.get_slot(variable, name)
    if not saver.strict and hasattr(run.optimizer, "loss_scale"):
        found["loss scale"] = run.optimizer.loss_scale
    (read,) = saver.read_all(run, [found])
    return {name: np.array(v) for name, v in read.items() if v is not None}


def advanced(run: Run, first: int, last: int) -> None:
    for step in range(first, last):
        run.advance(step)


def write(kind: str, path: Path) -> None:
    """Archive every stack that the mode accepts."""
    stacks: dict[str, str] = {}
    values: Values = {}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for mode in MODES:
            for stack in STACKS:
                if mode == "strict" and not is_original(kind, stack):
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    number = f"{len(stacks):02}"
                    saver = saver_of(kind, mode)
                    try:
                        run = saver.start(stack)
                        advanced(run, 0, SAVED_AT)
                        saver.save(run, Path(folder) / number)
                    except LockstepError:  # Strict refuses what the original did.
                        assert mode == "strict", stack
                        continue
                    stacks[number] = f"{mode}: {stack}"
                    for moment, end in (("saved", SAVED_AT), ("end", END)):
                        advanced(run, SAVED_AT, end)
                        found = values_of(saver, run)
                        values |= {
                            f"{number} {moment} {k}": v for k, v in found.items()
                        }
                    saver.close(run)
                    for file in sorted(Path(folder).iterdir()):
                        if file.name != "checkpoint":
                            archive.write(file, file.name)
        archive.writestr("stacks.json", json.dumps(stacks, indent=1))
        buffer = io.BytesIO()
        np.savez(buffer, **values)
        archive.writestr("values.npz", buffer.getvalue())


def is_original(kind: str, stack: str) -> bool:
    """Whether the original could run such a stack."""
    ours = {*OURS, *NOT_IN_GRAPHS} if kind == "tf graph" else set(OURS)
    return not ours & set(stack.split())


def read(
    kind: str, path: Path, chosen: Collection[str] = STACKS
) -> dict[str, list[str]]:
    """Load each checkpoint of these stacks from an archive and go on from it."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
        stacks = json.loads((Path(folder) / "stacks.json").read_text())
        values = dict(np.load(Path(folder) / "values.npz"))
        return {
            name: differences(
                kind, name, path.parent.name, Path(folder) / number, values
            )
            for number, name in stacks.items()
            if name.partition(": ")[2] in chosen
        }


def differences(
    kind: str, name: str, release: str, path: Path, values: Values
) -> list[str]:
    """List how a loaded run differs from the one that was saved."""
    mode, stack = name.split(": ")
    saver, found = saver_of(kind, mode), list[str]()
    run = saver.start(stack)
    saver.restore(run, path)
    if mode == "default" and skips(stack):
        found += miscounted(saver, run, SKIPPED_IN_ALL.get(release, 4))
    rows = "rows" in stack and mode == "default"
    in_turn = stack == "GradientDescent" and saver.backend == "keras3"
    normed = "NovoGrad" in stack and mode == "default" and kind == "pytorch"
    estimated = "Adagrad" in stack and kind in ("tf eager", "tf graph")
    is_rounded = rows or in_turn or normed
    loose = ESTIMATED if estimated else ROUNDED if is_rounded else 0.0
    for moment, end, tolerance in (("saved", SAVED_AT, 0.0), ("end", END, loose)):
        advanced(run, SAVED_AT, end)
        prefix = f"{path.name} {moment} "
        expected = {k[len(prefix) :]: v for k, v in values.items() if prefix in k}
        got = values_of(saver, run)
        missing = expected.keys() - got.keys()
        if moment == "end":  # TensorFlow makes some slots with the next step.
            found += [f"{moment}: {k} is missing" for k in sorted(missing)]
        found += [
            f"{moment}: {k}"
            for k in expected.keys() & got.keys()
            if not alike(got[k], expected[k], tolerance)
        ]
    saver.close(run)
    return found


def miscounted(saver: BackendSaver, run: Run, in_all: int) -> list[str]:
    """List which loaded counts of skipped steps are wrong."""
    scaled = run.optimizer
    while not hasattr(scaled, "skipped_in_a_row"):
        scaled = scaled.inner_optimizer
    expected = {"skipped_in_a_row": 1, "skipped_steps": in_all}
    counts = {name: getattr(scaled, name) for name in expected}
    (got,) = saver.read_all(run, [counts])
    return [f"{k}: {got[k]}, not {n}" for k, n in expected.items() if int(got[k]) != n]


def alike(got: Array, expected: Array, tolerance: float) -> bool:
    """Compare bit for bit, or relative to the largest element."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    if not tolerance:
        return got.tobytes() == expected.tobytes()
    apart = np.abs(got.astype(float) - expected.astype(float)).max(initial=0.0)
    return bool(apart <= tolerance * np.abs(expected.astype(float)).max(initial=1.0))


def main(act: str, kind: str, path: Path) -> None:
    if act == "write":
        write(kind, path)
    else:
        chosen = FEW_STACKS if act == "few" else STACKS
        print(json.dumps(read(kind, path, chosen)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
