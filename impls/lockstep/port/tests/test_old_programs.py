"""``lockstep port`` on old programs, on full names, and on the lines of the page."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("libcst", reason="libcst is not installed")

from harness.oracle.old_programs import FOLDER, programs
from harness.processes.children import ROOT
from lockstep.port.rewrite import Ported, port

END = "# --- end of imports ---"
MODULE = re.compile(r"^from (tensorflow\.contrib\.opt) import (\w+)\n", re.MULTILINE)
ASSIGNED = re.compile(r"^(\w+) = (tf\.train\.experimental)\n", re.MULTILINE)
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|$", re.MULTILINE)
TABLE = ROW.findall((ROOT / "docs/drop_in.md").read_text("utf-8"))


def source_of(name: str) -> str:
    return (FOLDER / f"{name}.py").read_text("utf-8")


def ported(text: str) -> Ported:
    return port(text.encode())


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", programs())
def test_only_imports_of_an_old_program_change(name: str) -> None:
    before, result = source_of(name), ported(source_of(name))
    after = result.output.decode()
    assert after.split(END)[1] == before.split(END)[1]
    assert "tensorflow.contrib" not in after and not result.leftovers
    again = ported(after)
    assert (again.changes, again.leftovers) == ((), ())


@pytest.mark.parametrize(("before", "after"), TABLE)
def test_a_line_of_the_page_becomes_what_the_page_says(before: str, after: str) -> None:
    name = "poly_decay" if "lr_policies" in before else "optimize_loss"
    start = "import tensorflow as tf\n" if " tf." in before else ""
    text = ported(f"{start}{before.replace('NAME', name)}\n").output.decode()
    lines = [line for line in text.splitlines() if line]
    expected = after.replace("NAME", name).split("; ")
    assert lines[-len(expected) :] == expected


def in_full(program: str) -> str:
    """Return a program in which names of old modules are written in full."""
    for module, name in MODULE.findall(program):
        full = f"{module.replace('tensorflow', 'tf')}.{name}"
        program = MODULE.sub("", program, count=1)
        program = re.sub(rf"\b{name}\b", full, program)
    for name, module in ASSIGNED.findall(program):
        program = ASSIGNED.sub("", program)
        program = re.sub(rf"\b{name}\.", f"{module}.", program)
    return program


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "name", [name for name in programs() if in_full(source_of(name)) != source_of(name)]
)
def test_full_names_are_ported_as_imports_are(name: str) -> None:
    program = in_full(source_of(name))
    result = ported(program)
    assert not result.leftovers
    unchanged = re.sub(r"tf\.(contrib\.opt|train\.experimental)\.", "strict.", program)
    added = "\n\ntf.disable_v2_behavior()\nfrom lockstep.tf import strict\n"
    v1 = f"import tensorflow.compat.v1 as tf{added}"
    expected = unchanged.replace("import tensorflow as tf\n", v1)
    assert result.output.decode() == expected
