"""The API reference: one page per backend and capability.

A backend's ``__init__`` imports each public name from a module that `MODULES` lists. It
is parsed and not imported, because the site is built without frameworks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from harness.errors import HarnessError
from harness.pages.templating import render
from lockstep.errors import sentence
from lockstep.registry import BACKENDS

CAPABILITIES: Mapping[str, str] = {
    "multitask": "Multitask",
    "clipping": "Clipping and LARC",
    "optimizers": "Optimizers",
    "scaling": "Loss scaling",
    "masters": "Float32 masters",
    "workers": "AGN workers",
    "schedules": "Learning-rate policies",
    "step": "The whole step",
    "base": "Every wrapper",
    "tensors": "Variables",
}
"""Capability -> the title of its pages."""

MODULES: Mapping[str, str] = {
    **{name: name for name in CAPABILITIES},
    "arrays": "tensors",
    "interface": "tensors",
    "variable_clipping": "clipping",
    "larc": "clipping",
    "novograd": "optimizers",
    "loss_scales": "scaling",
    "loss_scaling": "scaling",
    "mixed_precision": "masters",
    "agn": "workers",
    "lr_policies": "schedules",
    "optimize_loss": "step",
    "post_process": "step",
    "wrapper": "base",
    "pipeline": "base",
}
"""File or folder of a backend -> the capability of the names in it."""

HUBS: Mapping[str, tuple[str, str]] = {
    "pytorch": ("PyTorch", "pytorch.md"),
    "tf": ("TensorFlow", "tf.md"),
    "keras3": ("Keras 3", "keras3.md"),
    "reference": ("NumPy reference", "numpy.md"),
}
"""Backend -> its title and its page in ``docs/reference/``."""

RETURNED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("pytorch", "base"): ("wrapper.OptimizerWrapper",),
    ("tf", "base"): ("wrapper.Wrapper",),
    ("keras3", "base"): ("wrapper.Wrapper",),
    ("reference", "base"): ("optimizers.Optimizer",),
    ("pytorch", "step"): ("optimize_loss.TrainingStep",),
    ("tf", "step"): ("optimize_loss.TrainingStep",),
    ("keras3", "step"): ("optimize_loss.TrainingStep",),
    ("reference", "step"): ("optimize_loss.TrainingStep",),
}
"""Classes that users see but do not import: the base class of all wrappers, and the
class of the object that ``optimize_loss`` returns."""


class Name(NamedTuple):
    """A public name of a backend.

    Attributes:
        name: the name that users import.
        capability: the folder that it belongs to.
        path: the name below the backend's package, with its module if that has the
            same name.
        framework: the framework's class, if the name is an alias of one.
    """

    name: str
    capability: str
    path: str
    framework: str | None = None


def public_names(root: Path) -> dict[str, list[Name]]:
    """Return the public names of each backend, in the order of ``EXPORTS``.

    The capability of a name is that of the module from which the NumPy reference
    imports it. So the name is on the page with the same title for every backend.

    Raises:
        HarnessError: no import determines the capability of a name.
    """
    modules = {
        backend: ast.parse((root / backend / "__init__.py").read_text("utf-8"))
        for backend in HUBS
    }
    shared = dict(_imported(modules["reference"]))
    return {
        backend: _names(backend, tree, shared, root / backend)
        for backend, tree in modules.items()
    }


def _names(
    backend: str, tree: ast.Module, shared: Mapping[str, str], folder: Path
) -> list[Name]:
    places = {**dict(_imported(tree)), **shared}
    assigned = dict(_assigned(tree))
    names = []
    for name in BACKENDS[backend].public_names():
        if name.startswith("_"):
            continue
        if places.get(name) not in CAPABILITIES:
            expected = f"an import of {name} from a module of a capability"
            remedy = f"import it from one of {', '.join(MODULES)}"
            raise HarnessError(
                sentence(f"lockstep.{backend}", expected, "none", remedy)
            )
        own, path, value = None, name, assigned.get(name)
        module = folder / f"{name}.py"
        if module.exists() and f"\ndef {name}(" in module.read_text("utf-8"):
            path = f"{name}.{name}"
        elif isinstance(value, ast.Call):  # with_strict(clipping.NAME)
            path = f"shared.{ast.unparse(value.args[0])}"
        elif value is not None:
            own = ast.unparse(value)
        names.append(Name(name, places[name], path, own))
    return names


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (name, capability) for each name that a module imports from Lockstep."""
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom):
            continue
        package, *parts = (node.module or "").split(".")
        for alias in node.names if package == "lockstep" else ():
            known = [part for part in (*parts, alias.name) if part in MODULES]
            if known:
                yield alias.name, MODULES[known[0]]


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, value) for each assignment of a module."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def reference_pages(root: Path) -> dict[str, str]:
    """Return path -> text of the pages below ``docs/generated/reference/``."""
    names = public_names(root)
    return {
        f"{backend}/{capability}.md": render(
            "reference.md.jinja",
            title=f"{CAPABILITIES[capability]} ({HUBS[backend][0]})",
            backend=backend,
            capability=capability,
            hub=HUBS[backend],
            others=_others(names, backend, capability),
            names=[name for name in names[backend] if name.capability == capability],
            returned=RETURNED.get((backend, capability), ()),
        )
        for backend in HUBS
        for capability in _capabilities(names, backend)
    }


def _capabilities(names: Mapping[str, list[Name]], backend: str) -> list[str]:
    """Return the capabilities that a backend has a page for."""
    with_names = {name.capability for name in names[backend]}
    return [c for c in CAPABILITIES if c in with_names or (backend, c) in RETURNED]


def _others(
    names: Mapping[str, list[Name]], backend: str, capability: str
) -> list[tuple[str, str]]:
    """Return (title, address) of the same page for each other backend."""
    return [
        (title, f"../{other}/{capability}.md")
        for other, (title, _) in HUBS.items()
        if other != backend and capability in _capabilities(names, other)
    ]


def reference_inserts(root: Path) -> dict[str, str]:
    """Return the tables for the index and for the page of each backend."""
    names = public_names(root)
    pages = {backend: _capabilities(names, backend) for backend in HUBS}
    index = render(
        "reference_index.md.jinja", capabilities=CAPABILITIES, hubs=HUBS, pages=pages
    )
    return {
        "reference_index": index,
        **{
            f"reference_{backend}": render(
                "reference_hub.md.jinja",
                capabilities=CAPABILITIES,
                backend=backend,
                pages=pages[backend],
                names=names[backend],
            )
            for backend in HUBS
        },
    }
