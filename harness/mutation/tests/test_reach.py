"""Which checks enter which function, and what is run for a mutant."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.mutation import choice, reach, tracer
from harness.mutation.choice import Killer, choose
from harness.mutation.mutant import ROOT, Edit, Mutant, source_of
from harness.mutation.nearest import Check, nearest_checks
from harness.mutation.reach import Place, Reach, Unit, place_of, read_reach, units_of

PATH = "impls/lockstep/reference/clipping/larc.py"
MODULE = "clipping/larc.py"
SOURCE = '''
TABLE = (1, 2)


class Norm:
    size = 3

    @property
    def value(self, scale: float = 4.0) -> float:
        """Return it."""
        return 5.0


def outer(n: int = 6) -> object:
    def inner() -> int:
        return 7

    return inner
'''
FUNCTION, HEAD = Place(function="outer"), Place(head="Norm.value")


def mutant_at(text: str, source: str) -> Mutant:
    """Return a mutant that changes the first place of a text."""
    at = source.index(text)
    return Mutant(PATH, "NumberReplacer", 0, 1, "", Edit(at, at + 1, "9"), "0" * 16)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("2", Place()),
        ("3", Place()),
        ("@property", HEAD),
        ("4.0", HEAD),
        ("5.0", Place(function="Norm.value")),
        ("6", Place(head="outer")),
        ("7", FUNCTION),
    ],
)
def test_a_mutant_stands_in_the_outermost_function(
    text: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "source_of", lambda _: SOURCE)
    assert place_of(mutant_at(text, SOURCE)) == place


def made_up() -> Reach:
    """Return what some checks enter: their seconds differ."""
    cases = {"numpy larc-p-002": 3.0, "numpy larc-p-001": 1.0, "numpy agn-f-001": 2.0}
    tests = {"test_a.py::test_it": 0.5, "test_b.py::test_it": 0.1}
    entered = {
        "numpy larc-p-002": ["clipping/larc.py:outer"],
        "numpy larc-p-001": ["clipping/larc.py:outer"],
        "numpy agn-f-001": ["clipping/larc.py:outer"],
        "test_a.py::test_it": ["clipping/larc.py:outer", "other.py:f"],
        "test_b.py::test_it": ["clipping/larc.py:Norm.value", ":outer"],
    }
    contents = [
        (Unit("numpy", mode=True), {"seconds": cases, "entered": entered}),
        (Unit("tests"), {"seconds": tests, "entered": entered}),
    ]
    return Reach("reference", contents)


def chosen(
    place: Place, monkeypatch: pytest.MonkeyPatch, killers: Sequence[Killer] = ()
) -> choice.Choice:
    """Return what is run for a mutant at a place."""
    monkeypatch.setattr(choice, "place_of", lambda _: place)
    return choose(mutant_at("0", source_of(PATH)), made_up(), killers)


def test_checks_that_enter_the_function_are_run_cheapest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = chosen(FUNCTION, monkeypatch)
    assert result.checks == [
        Check("case", ["numpy larc-p-001", "numpy agn-f-001"]),
        Check("test", ["test_b.py::test_it", "test_a.py::test_it"]),
        Check("case", ["numpy larc-p-002"]),
    ]
    assert result.seconds == pytest.approx(6.6)


def test_killers_that_enter_the_function_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = [("test", "test_a.py::test_it"), ("case", "numpy larc-p-002"), ("case", "x")]
    result = chosen(FUNCTION, monkeypatch, old)
    assert result.checks == [
        Check("case", ["numpy larc-p-002"]),
        Check("test", ["test_a.py::test_it"]),
        Check("case", ["numpy larc-p-001", "numpy agn-f-001"]),
        Check("test", ["test_b.py::test_it"]),
    ]
    nearest = chosen(Place(function="unknown"), monkeypatch, old).checks
    assert nearest[0] == Check("case", ["numpy larc-p-002", "x"])


def test_no_check_is_begun_after_enough_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "place_of", lambda _: FUNCTION)
    result = choose(mutant_at("0", source_of(PATH)), made_up(), enough=3.05)
    assert [list(check.names) for check in result.checks] == [
        ["numpy larc-p-001", "numpy agn-f-001"],
        ["test_b.py::test_it"],
    ]


@pytest.mark.parametrize("place", [HEAD, Place()])
def test_outside_of_a_function_signatures_come_first(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    signatures, *others = chosen(place, monkeypatch).checks
    assert signatures.names[0].endswith("signatures_are_as_frozen[reference]")
    names = {name for check in others for name in check.names}
    assert ("numpy agn-f-001" in names) is (place == Place())
    assert "test_b.py::test_it" in names


def test_outside_of_a_function_the_nearest_tests_are_run_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = "impls/lockstep/reference/tests/clipping/test_larc.py::test_it"
    seen = made_up()
    seen.seconds[refused], seen.kinds[refused] = 0.2, "test"
    names = {}
    for place in (HEAD, FUNCTION):
        monkeypatch.setattr(choice, "place_of", lambda _, place=place: place)
        checks = choose(mutant_at("0", source_of(PATH)), seen).checks
        names[place] = {name for check in checks for name in check.names}
    assert refused in names[HEAD] - names[FUNCTION]


def test_what_no_check_enters_has_its_nearest_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = chosen(Place(function="unknown"), monkeypatch)
    assert (result.checks, result.seconds) == (nearest_checks(PATH), None)


def test_a_backend_is_watched_by_its_tests_and_modes() -> None:
    names = {unit.name: unit for unit in units_of("tf")}
    assert "impls/lockstep/tf/tests/clipping/test_larc.py" in names
    assert names["impls/lockstep/tests/test_same_errors.py"].keyword == "tf"
    modes = [unit.name for unit in units_of("tf")][-4:]
    assert modes == ["eager", "function", "graph", "v1"]
    assert all((ROOT / name).is_file() for name in names if name not in modes)


TESTS = """
import subprocess, sys

import numpy as np
import pytest

from lockstep.reference.clipping import larc

CODE = "from lockstep.reference.clipping import larc; larc.larc_ratio({policy}, 2.0)"


class Policy:
    mode = "scale"


def test_here():
    assert larc.larc_ratio(Policy, 2.0) == 2.0


def test_in_a_process():
    code = CODE.format(policy="type('Policy', (), {'mode': 'scale'})")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def norm():
    return larc.tensor_norm(np.ones(4, np.float32))


def test_of_a_fixture(norm):
    assert norm == 2.0


def test_that_fails():
    assert larc.larc_ratio(Policy, 2.0) == 3.0
"""


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of tests that is the only unit of the reference."""
    file = tmp_path / "test_watched.py"
    file.write_text(TESTS, "utf-8")
    monkeypatch.setattr(reach, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(reach, "units_of", lambda _: [Unit(str(file))])
    return file


def test_a_watch_sees_tests_and_what_they_start(watched: Path) -> None:
    texts: list[str] = []
    seen = read_reach("reference", 1, texts.append)
    assert texts[-1] == "watched 1 of 1 parts"
    names = {name.rsplit("::", 1)[1]: name for name in seen.seconds}
    assert sorted(names) == ["test_here", "test_in_a_process", "test_of_a_fixture"]
    ratio = seen.entering(PATH, Place(function="larc_ratio"))
    assert ratio == {names["test_here"], names["test_in_a_process"]}
    # What the fixture of the whole file enters counts for all of its tests.
    norm = seen.entering(PATH, Place(function="tensor_norm"))
    assert norm == set(names.values())
    assert min(seen.seconds.values()) > 0


def test_what_was_seen_is_kept_until_the_tests_change(
    watched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_reach("reference", 1, lambda _: None).seconds
    texts: list[str] = []
    assert read_reach("reference", 1, texts.append).seconds == before
    assert texts == []
    watched.write_text("def test_other():\n    pass\n", "utf-8")
    seconds = read_reach("reference", 1, texts.append).seconds
    assert [name.rsplit("::", 1)[1] for name in seconds] == ["test_other"]


def test_a_watch_that_ends_its_process_is_an_error(watched: Path) -> None:
    watched.write_text("import os\nos._exit(3)\n", "utf-8")
    with pytest.raises(HarnessError, match="exit status 3 of"):
        read_reach("reference", 1, lambda _: None)


TRACED = """
import json, sys
sys.path.insert(0, {root!r})
from harness.mutation.tracer import Tracer

def plain():
    def inner():
        pass
    inner()

code = compile("def tf__converted(): pass", {generated!r}, "exec")
names = {{}}
exec(code, names)
seen = Tracer({home!r})
seen.start()
plain()
names["tf__converted"]()
print(json.dumps(sorted(seen.entered)))
"""


def test_a_function_that_tensorflow_converted_is_known_by_its_name(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    generated = f"/tmp/{tracer.CONVERTED}x.py"
    text = TRACED.format(root=str(ROOT), generated=generated, home=f"{tmp_path}/")
    script.write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [":converted", "script.py:plain"]


def test_what_is_seen_of_a_converted_function_counts_for_all_of_its_name() -> None:
    names: Any = made_up().entering(PATH, FUNCTION)
    assert "test_b.py::test_it" in names
