"""Every example in a docstring gives what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest

from lockstep import registry

SOURCE = Path(__file__).parents[2]
FRAMEWORKS = {
    "tf": ("tensorflow",),
    "keras3": ("keras", "tensorflow"),
    "pytorch": ("torch",),
}
SHORT = {"tensorflow": "tf"}
"""What a framework is called in examples, if not by its name."""


def shown() -> list[str]:
    """Return the modules that have examples."""
    paths = [
        path.relative_to(SOURCE).with_suffix("")
        for path in sorted((SOURCE / "lockstep").rglob("*.py"))
        if "tests" not in path.parts and ">>> " in path.read_text("utf-8")
    ]
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]


@pytest.mark.parametrize("name", shown())
def test_examples_give_what_they_say(name: str) -> None:
    backend = name.partition(".")[2].partition(".")[0]
    names: dict[str, Any] = {}
    if backend in registry.BACKENDS:
        if not registry.installed(backend):
            pytest.skip(f"{registry.find(backend).framework} is not installed")
        names |= vars(registry.load(backend))
        for framework in FRAMEWORKS.get(backend, ()):
            module = importlib.import_module(framework)
            names[SHORT.get(framework, framework)] = module
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module, extraglobs=names)
    text = Path(str(module.__file__)).read_text("utf-8")
    assert tried or ">>> " not in text
    assert failed == 0
