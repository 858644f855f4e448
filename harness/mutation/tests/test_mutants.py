"""Mutants as edits, and what is nearest to a module."""

from __future__ import annotations

import pytest

from harness.mutation.mutant import (
    ROOT,
    Edit,
    Mutant,
    edit_between,
    source_of,
)
from harness.mutation.nearest import SHARED, families_near, nearest_checks
from harness.parity.cases import FAMILIES

LARC = "impls/lockstep/reference/clipping/larc.py"


def mutant_of(path: str) -> Mutant:
    """Return a mutant of a module; its edit does not matter."""
    return Mutant(path, "AddNot", 0, 1, "", Edit(0, 0, ""), "0" * 16)


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a + b", "a - b"),
        ("if a:", "if not a:"),
        ("not a", "a"),
        ("x = 1", "x = 10"),
        ("aaa", "aa"),
        ("aa", "aaa"),
        ("", "x"),
        ("x", ""),
        ("f(x, y)\nz", "f(x, y, y)\nz"),
    ],
)
def test_an_edit_makes_the_changed_source(source: str, changed: str) -> None:
    assert edit_between(source, changed).applied_to(source) == changed


def test_an_edit_shows_whole_lines_without_indentation() -> None:
    source = "def f(a):\n    if a:\n        return 1\n    return 2\n"
    edit = edit_between(source, source.replace("if a", "if not a"))
    assert edit.lines(source) == ("if a:", "if not a:")
    last = edit_between(source, source.replace("2\n", "3\n"))
    assert last.lines(source) == ("return 2", "return 3")


def test_an_edit_over_two_lines_shows_both() -> None:
    source = "a\nfor x in (\n    1,\n):\n    b\n"
    edit = edit_between(source, source.replace("(\n    1,\n)", "[]"))
    assert edit.lines(source) == ("for x in ( 1, ):", "for x in []:")


@pytest.mark.parametrize(
    ("path", "module"),
    [
        (LARC, "lockstep.reference.clipping.larc"),
        ("impls/lockstep/tf/__init__.py", "lockstep.tf"),
    ],
)
def test_a_mutant_knows_the_name_of_its_module(path: str, module: str) -> None:
    assert mutant_of(path).module == module


def test_a_mutant_comes_back_from_json() -> None:
    mutant = mutant_of(LARC)
    assert Mutant.from_json(mutant.as_json()) == mutant


def test_a_folder_is_near_to_its_own_families_and_to_some_of_others() -> None:
    assert families_near("workers") == ["agn"]
    assert families_near("multitask") == ["multitask", "multitask_clip"]
    assert families_near("optimizers")[:2] == ["base_optimizers", "novograd"]
    assert "optimize_loss" in families_near("optimizers")
    assert families_near("base") == []


def test_the_tests_named_after_a_module_come_before_its_neighbours() -> None:
    cases, near, *_ = nearest_checks(LARC)
    assert (cases.kind, near.kind) == ("case", "test")
    assert "larc" in cases.names
    files = [name for name in near.names if "::" not in name]
    assert files[0] == "impls/lockstep/reference/tests/clipping/test_larc.py"
    assert "impls/lockstep/reference/tests/clipping/test_strict_rows.py" in files


def test_examples_in_docstrings_are_near() -> None:
    policies = "impls/lockstep/reference/schedules/lr_policies.py"
    assert ">>> " in source_of(policies)
    near = nearest_checks(policies)[1]
    assert near.names[0].endswith("[lockstep.reference.schedules.lr_policies]")


def test_of_the_tests_that_backends_share_those_of_the_backend_are_run() -> None:
    checks = nearest_checks(LARC)
    assert [check.keyword for check in checks if check.names == SHARED] == ["reference"]
    assert all((ROOT / name).is_file() for name in SHARED)


def test_tests_in_other_processes_are_near_as_others_are() -> None:
    path = "impls/lockstep/pytorch/base/foreign_state.py"
    names = {name for check in nearest_checks(path) for name in check.names}
    folder = "impls/lockstep/pytorch/tests/base"
    assert f"{folder}/test_foreign_state.py" in names
    assert f"{folder}/test_two_ranks.py" in names


def test_numbers_of_a_step_are_near_to_what_all_wrappers_share() -> None:
    path = "impls/lockstep/pytorch/base/summaries.py"
    near = nearest_checks(path)[0]
    assert "impls/lockstep/pytorch/tests/step/test_step_numbers.py" in near.names


def test_what_watches_all_wrappers_is_near_to_each_but_comes_later() -> None:
    _, near, *_ = nearest_checks("impls/lockstep/tf/shared/scaling/skips.py")
    tests = "impls/lockstep/tf/tests"
    counts = near.names.index(f"{tests}/base/test_step_reports.py")
    assert near.names.index(f"{tests}/scaling/test_loss_scaling.py") < counts


def test_tests_of_what_a_module_exports_come_after_those_of_its_folder() -> None:
    path = "impls/lockstep/pytorch/step/regularization.py"
    _, near, *_ = nearest_checks(path)
    elsewhere = "impls/lockstep/pytorch/tests/clipping/test_larc.py"
    in_folder = "impls/lockstep/pytorch/tests/step/test_reduction.py"
    assert near.names.index(in_folder) < near.names.index(elsewhere)


def test_what_backends_share_has_the_tests_and_cases_of_its_capability() -> None:
    cases, near, *_ = nearest_checks("impls/lockstep/tf/shared/clipping/larc.py")
    assert "larc" in cases.names
    signatures, first, *_ = near.names
    assert signatures.endswith("[tf]")
    assert first == "impls/lockstep/tf/tests/clipping/test_larc.py"


@pytest.mark.parametrize("backend", ["reference", "pytorch"])
def test_all_cases_follow_and_on_the_reference_all_tests(backend: str) -> None:
    checks = nearest_checks(LARC.replace("reference", backend))
    cases = [name for check in checks if check.kind == "case" for name in check.names]
    assert sorted(cases) == sorted(FAMILIES)
    files = {name for check in checks if check.kind == "test" for name in check.names}
    home = ROOT / "impls" / "lockstep" / backend / "tests"
    every = {p.relative_to(ROOT).as_posix() for p in home.rglob("test_*.py")}
    assert (every <= files) is (backend == "reference")
