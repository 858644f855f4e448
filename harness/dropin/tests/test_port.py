"""``lockstep port`` on the old programs, and on their names written in full."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("libcst", reason="libcst is not installed")

from harness.dropin.declared import Program, find, programs
from harness.dropin.judging import compare, largest
from harness.dropin.moving import Line, lines, move
from harness.dropin.tests import together
from harness.tests.shared_processes import Processes
from lockstep.port.rewrite import Ported, port

NAMES = sorted(programs())
MODULE = re.compile(r"^from (tensorflow\.contrib\.opt) import (\w+)\n", re.MULTILINE)
ASSIGNED = re.compile(r"^(\w+) = (tf\.train\.experimental)\n", re.MULTILINE)


def ported(text: str) -> Ported:
    return port(text.encode())


@pytest.mark.parametrize("name", NAMES)
def test_an_old_program_is_ported_by_the_lines_of_the_page(name: str) -> None:
    result = ported(find(name).text)
    assert result.output.decode() == move(find(name).text)
    assert not result.leftovers


@pytest.mark.parametrize("name", NAMES)
def test_a_ported_program_is_not_changed_again(name: str) -> None:
    again = ported(move(find(name).text))
    assert (again.changes, again.leftovers) == ((), ())


@pytest.mark.parametrize("line", lines(), ids=lambda line: line.original)
def test_every_line_of_the_page_is_ported(line: Line) -> None:
    name = "poly_decay" if "lr_policies" in line.original else "optimize_loss"
    before = line.original.replace("{rest}", name)
    start = "import tensorflow as tf\n" if "tf." in before else ""
    after = ported(f"{start}{before}\n").output.decode().split("\n")
    assert after[-1 - len(line.moved) : -1] == line.change(before)


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


IN_FULL = [name for name in NAMES if in_full(find(name).text) != find(name).text]


@pytest.mark.parametrize("name", IN_FULL)
def test_full_names_are_ported_as_imports_are(name: str) -> None:
    program = in_full(find(name).text)
    result = ported(program)
    assert not result.leftovers
    text = result.output.decode()
    assert "tf.contrib" not in text and "tf.train.experimental" not in text
    assert text.count("from lockstep.tf import strict\n") == 1
    unchanged = re.sub(r"tf\.(contrib\.opt|train\.experimental)\.", "strict.", program)
    added = "\n\ntf.disable_v2_behavior()\nfrom lockstep.tf import strict\n"
    v1 = f"import tensorflow.compat.v1 as tf{added}"
    assert text == unchanged.replace("import tensorflow as tf\n", v1)


@pytest.mark.slow
@pytest.mark.backend("tf")
@pytest.mark.parametrize(
    "name", ["partitioned", pytest.param("loss_scaling", marks=pytest.mark.soak)]
)
def test_full_names_that_are_ported_print_what_the_original_printed(
    name: str, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = find(name)
    monkeypatch.setattr(together, "move", lambda text: ported(text).output.decode())
    text = in_full(program.text)
    assert text != program.text
    monkeypatch.setattr(Program, "text", property(lambda own: text))
    (phase,) = program.phases
    printed = together.printed_by(program, phase, tmp_path, processes)
    assert largest(compare(program.recorded.lines, printed)) <= program.ulp
