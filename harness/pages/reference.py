"""The API reference: one page per backend and capability.

A name belongs to the capability of the file from which a backend's ``__init__`` imports
it. That is parsed and not imported, because the site is built without frameworks.
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
"""Capability -> the title of its pages, in the order of the site. Others follow, by the
names of their files."""

MODULES: Mapping[str, str] = {
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
"""File of a backend -> the capability of the names in it, if it is not its name."""

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
    imported, assigned = dict(_imported(tree)), dict(_assigned(tree))
    places = {**imported, **shared}
    names = []
    for name in BACKENDS[backend].names_in({**imported, **assigned}):
        if name.startswith("_"):
            continue
        if name not in places:
            expected, remedy = f"an import of {name}", "import it from its file"
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
            listed = [part for part in (*parts, alias.name) if part in MODULES]
            yield alias.name, MODULES[listed[0]] if listed else parts[-1]


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
            title=f"{title} ({HUBS[backend][0]})",
            backend=backend,
            capability=capability,
            hub=HUBS[backend],
            others=_others(names, backend, capability),
            names=[name for name in names[backend] if name.capability == capability],
            returned=RETURNED.get((backend, capability), ()),
        )
        for backend in HUBS
        for capability, title in capabilities(names, backend).items()
    }


def capabilities(names: Mapping[str, list[Name]], *backends: str) -> dict[str, str]:
    """Return capability -> title of the pages that any of some backends has."""
    found = {name.capability for backend in backends for name in names[backend]}
    found |= {capability for backend, capability in RETURNED if backend in backends}
    listed = {key: title for key, title in CAPABILITIES.items() if key in found}
    others = sorted(found - set(CAPABILITIES))
    return listed | {key: key.replace("_", " ").capitalize() for key in others}


def _others(
    names: Mapping[str, list[Name]], backend: str, capability: str
) -> list[tuple[str, str]]:
    """Return (title, address) of the same page for each other backend."""
    return [
        (title, f"../{other}/{capability}.md")
        for other, (title, _) in HUBS.items()
        if other != backend and capability in capabilities(names, other)
    ]


def reference_inserts(root: Path) -> dict[str, str]:
    """Return the tables for the index and for the page of each backend."""
    names = public_names(root)
    pages = {backend: capabilities(names, backend) for backend in HUBS}
    index = render(
        "reference_index.md.jinja",
        capabilities=capabilities(names, *HUBS),
        hubs=HUBS,
        pages=pages,
    )
    return {
        "reference_index": index,
        **{
            f"reference_{backend}": render(
                "reference_hub.md.jinja",
                backend=backend,
                pages=pages[backend],
                names=names[backend],
            )
            for backend in HUBS
        },
    }
