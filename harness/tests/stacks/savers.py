"""How each backend saves a run and goes on from what was saved."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.parity import drivers
from harness.tests.stacks.run import Run

Snapshot = dict[str, str]


def digest(value: Any) -> str:
    """Return a digest of a number or an array, its dtype and shape included."""
    if value is None:
        return "none"
    array = np.asarray(value)
    text = f"{array.dtype} {array.shape} ".encode() + array.tobytes()
    return hashlib.sha256(text).hexdigest()[:12]


class Saver:
    """What a backend does with the runs of all stacks."""

    backend = "reference"
    mode: str | None = None

    def start(self, stack: str) -> Run:
        """Return a run at its beginning."""
        return Run(stack, drivers.load(self.backend, self.mode, strict=False))

    def save(self, run: Run, path: Path) -> None:
        """Write a run's model and optimizer to files that begin with ``path``."""
        raise NotImplementedError

    def restore(self, run: Run, path: Path) -> None:
        """Let a new run go on from what was saved."""
        raise NotImplementedError

    def snapshot(self, run: Run) -> Snapshot:
        """Return model and slots by name; the rest of the state, sorted.

        In what order a backend lists its state depends on what was made first.
        """
        optimizer, found = run.optimizer, dict[str, Any]()
        found |= {str(k): variable for k, variable in enumerate(run.variables)}
        for name in optimizer.get_slot_names():
            for number, variable in enumerate(run.variables):
                found[f"{name} {number}"] = optimizer.get_slot(variable, name)
        rest = dict(enumerate(optimizer.variables()))
        named, others = self.read_all(run, [found, rest])
        state = sorted(digest(value) for value in others.values())
        digests = {name: digest(value) for name, value in named.items()}
        return digests | {"state": " ".join(state)}

    def read_all(self, run: Run, nest: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
        """Return what variables hold, in the place of each; None stays None."""
        read = run.driver.read
        return [
            {k: None if part is None else read(part) for k, part in parts.items()}
            for parts in nest
        ]


class ReferenceSaver(Saver):
    """Model and optimizer pickled together: the state is keyed by the variables."""

    def save(self, run: Run, path: Path) -> None:
        path.write_bytes(pickle.dumps((run.variables, run.optimizer)))

    def restore(self, run: Run, path: Path) -> None:
        run.variables, run.optimizer = pickle.loads(path.read_bytes())

    def snapshot(self, run: Run) -> Snapshot:
        """Return a digest of everything that the optimizer refers to, sorted."""
        found = sorted(digests([run.variables, run.optimizer], set()))
        return {"state": " ".join(found)}


def digests(value: Any, seen: set[int]) -> list[str]:
    """Return the digests of all numbers and arrays to which an object refers."""
    if isinstance(value, np.ndarray | np.generic | int | float):
        return [digest(value)]
    if id(value) in seen or isinstance(value, str):
        return []
    seen.add(id(value))
    if isinstance(value, Mapping):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    return [text for part in parts for text in digests(part, seen)]


class TorchSaver(Saver):
    """``torch.save`` of the parameters and ``state_dict()``."""

    backend = "pytorch"

    def save(self, run: Run, path: Path) -> None:
        import torch

        model = [parameter.detach() for parameter in run.variables]
        torch.save({"model": model, "optimizer": run.optimizer.state_dict()}, path)

    def restore(self, run: Run, path: Path) -> None:
        import torch

        saved = torch.load(path, weights_only=True)
        with torch.no_grad():
            for parameter, value in zip(run.variables, saved["model"], strict=True):
                parameter.copy_(value)
        run.optimizer.load_state_dict(saved["optimizer"])

    def snapshot(self, run: Run) -> Snapshot:
        found = {
            str(k): digest(run.driver.read(p)) for k, p in enumerate(run.variables)
        }
        return found | dict(leaves(run.optimizer.state_dict()))


def leaves(nest: Any, place: str = ""):
    """Yield (place, digest) of every number and tensor of a saved state."""
    if isinstance(nest, Mapping):
        for key, value in nest.items():
            yield from leaves(value, f"{place}/{key}")
    elif isinstance(nest, list | tuple):
        for key, value in enumerate(nest):
            yield from leaves(value, f"{place}/{key}")
    else:
        is_tensor = hasattr(nest, "detach")
        yield place, digest(nest.detach().numpy()) if is_tensor else repr(nest)


class EagerSaver(Saver):
    """``tf.train.Checkpoint`` of the variables and the optimizer."""

    backend, mode = "tf", "eager"

    def checkpoint(self, run: Run) -> Any:
        import tensorflow as tf

        model = self.model(run)
        return tf.train.Checkpoint(model=model, optimizer=run.optimizer)

    def model(self, run: Run) -> list[Any]:
        return run.variables

    def save(self, run: Run, path: Path) -> None:
        self.checkpoint(run).write(str(path))

    def restore(self, run: Run, path: Path) -> None:
        self.checkpoint(run).read(str(path)).assert_existing_objects_matched()


class KerasSaver(EagerSaver):
    """The same; an optimizer of Keras is built before its state can be loaded."""

    backend = "keras3"

    def start(self, stack: str) -> Run:
        run = super().start(stack)
        run.optimizer.build(run.variables)
        return run

    def model(self, run: Run) -> list[Any]:
        return [variable.value for variable in run.variables]


class GraphSaver(Saver):
    """A ``Saver`` of the graph's global variables, and of what a worker has itself."""

    backend, mode = "tf", "graph"

    def start(self, stack: str) -> Run:
        import tensorflow as tf

        run = super().start(stack)
        # All that a graph will hold must be in it before a Saver is made.
        run.build()
        shared = tf.compat.v1.global_variables()
        state = [*shared, *run.variables, *run.optimizer.variables()]
        once = {variable.ref(): variable for variable in state}
        run.saver = tf.compat.v1.train.Saver(list(once.values()), max_to_keep=None)
        return run

    def read_all(self, run: Run, nest: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
        """Read all at once: each run of a session has its price."""
        wanted = [
            {k: part for k, part in parts.items() if part is not None} for parts in nest
        ]
        read = run.driver.run(wanted)
        return [
            dict.fromkeys(parts) | got for parts, got in zip(nest, read, strict=True)
        ]

    def save(self, run: Run, path: Path) -> None:
        run.saver.save(run.driver.session, str(path), write_meta_graph=False)

    def restore(self, run: Run, path: Path) -> None:
        run.saver.restore(run.driver.session, str(path))


SAVERS: Mapping[str, type[Saver]] = {
    "reference": ReferenceSaver,
    "pytorch": TorchSaver,
    "tf eager": EagerSaver,
    "tf graph": GraphSaver,
    "keras3": KerasSaver,
}
