"""Docstrings of backends are complete: every argument is explained once."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import lockstep
from lockstep import registry
from lockstep.docstrings import METHODS, TEXTS, complete, documented, text_of
from lockstep.docstrings.tensorflow import TEXTS as ON_TENSORFLOW

SOURCES = Path(lockstep.__file__).parent
SHARED = """\
Add two numbers.

Args:
    a: a number.
    b: another.
    c: a third.

Raises:
    ValueError: no numbers.

Origin: arithmetic.
"""


def test_without_a_docstring_a_function_has_the_shared_one() -> None:
    assert complete(None, SHARED, ["a", "b", "c"]) == SHARED.rstrip()


def test_an_argument_that_a_function_does_not_have_is_left_out() -> None:
    assert "c: a third." not in complete(None, SHARED, ["a", "b"])


def test_own_entries_take_precedence_in_the_order_of_the_arguments() -> None:
    own = "...\n\nArgs:\n    d: a fourth.\n    a: a tensor.\n        Of float32."
    text = complete(own, SHARED, ["d", "a", "b"])
    assert text.startswith("Add two numbers.\n\nArgs:\n    d: a fourth.\n")
    assert "    a: a tensor.\n        Of float32.\n    b: another.\n\nRaises" in text


def test_a_head_replaces_the_shared_one_unless_dots_stand_for_it() -> None:
    assert complete("Subtract.", SHARED, []).startswith("Subtract.\n\nRaises:")
    goes_on = complete("...\n\nIn float32.", SHARED, [])
    assert goes_on.startswith("Add two numbers.\n\nIn float32.\n\nRaises:")


def test_dots_after_a_first_line_leave_out_the_shared_one() -> None:
    shared = f"Add.\n\nBoth are rounded.\n\n{SHARED}"
    text = complete("Add tensors.\n\n...\n\nIn float32.", shared, [])
    assert text.startswith("Add tensors.\n\nBoth are rounded.\n\nAdd two numbers.")


def test_dots_in_a_section_stand_for_the_shared_entries() -> None:
    own = "Add.\n\nRaises:\n    ...\n    TypeError: no tensors."
    text = complete(own, SHARED, [])
    expected = "Raises:\n    ValueError: no numbers.\n    TypeError: no tensors.\n\n"
    assert expected in text


def test_the_origin_is_last() -> None:
    text = complete("Add.\n\nSlots: none.", SHARED, [])
    assert text.endswith("Slots: none.\n\nOrigin: arithmetic.")


def test_every_entry_is_taken_where_the_arguments_are_not_known() -> None:
    assert complete(None, SHARED, None) == SHARED.rstrip()


def test_a_text_has_the_noun_of_the_backend() -> None:
    name = "VariableClippingOptimizer"
    assert "a parameter's rows" in text_of(name, "lockstep.pytorch.clipping")
    assert "a variable's rows" in text_of(name, "lockstep.tf.clipping")


def test_what_tf_and_keras_share_comes_between_the_shared_text_and_their_own() -> None:
    name = "MixedPrecisionLossScaleOptimizer"
    texts = {b: text_of(name, f"lockstep.{b}.scaling") for b in registry.BACKENDS}
    assert texts["tf"] == texts["keras3"] != texts["pytorch"] == texts["reference"]
    entries = texts["tf"].splitlines()
    assert "    floor_patience: steps." in entries  # of all backends
    assert "    inner_optimizer: ``opt``." in entries  # of these two
    assert sum(entry.startswith("    at_floor: ") for entry in entries) == 1


def test_a_method_has_the_text_of_its_own_class() -> None:
    update = text_of("DynamicLossScale.update", "lockstep.tf.scaling")
    assert update.startswith("Move the scale by one step.")
    with pytest.raises(KeyError, match=r"TrainingStep\.update"):
        text_of("TrainingStep.update", "lockstep.tf.step")


def test_a_section_or_named_paragraph_replaces_the_shared_one() -> None:
    own = "Raises:\n    TypeError: always.\n\nOrigin: algebra.\n\nExample:\n    >>> 1"
    text = complete(f"...\n\n{own}", SHARED, [])
    assert text == f"Add two numbers.\n\n{own}"


def test_a_name_without_a_text_is_refused() -> None:
    with pytest.raises(KeyError, match="nowhere"):

        @documented
        def nowhere() -> None: ...


class Place(NamedTuple):
    """A class or function whose docstring is completed.

    Attributes:
        backend: the package that it is in.
        path: its file below the package of all backends.
        name: of the class, function or method, with its class.
        docstring: as its source has it.
    """

    backend: str
    path: str
    name: str
    docstring: str


def places() -> Iterator[Place]:
    """Yield what is decorated, from the sources of all backends."""
    for file in sorted(SOURCES.rglob("*.py")):
        if "tests" not in file.parts:
            path = file.relative_to(SOURCES)
            for name, node in definitions(ast.parse(file.read_text("utf-8"))):
                if "documented" in map(ast.unparse, node.decorator_list):
                    text = ast.get_docstring(node) or ""
                    yield Place(path.parts[0], str(path), name, text)


def definitions(
    scope: ast.Module | ast.ClassDef,
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef]]:
    """Yield the classes and functions of a module, and methods with their class."""
    for node in scope.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            yield from (
                (f"{node.name}.{name}", each) for name, each in definitions(node)
            )


PLACES = list(places())


def test_every_text_is_used_by_two_backends() -> None:
    uses: dict[str, set[str]] = {name: set() for name in [*TEXTS, *ON_TENSORFLOW]}
    for place in PLACES:
        for key in {place.name, place.name.rpartition(".")[2]} & set(uses):
            uses[key].add(place.backend)
    assert not {name for name, users in uses.items() if len(users) < 2}
    of_both = {name for name in ON_TENSORFLOW if not uses[name] >= {"tf", "keras3"}}
    assert not of_both


@pytest.mark.parametrize("path", sorted({place.path for place in PLACES}))
def test_the_reference_has_the_first_line_and_others_only_one_that_differs(
    path: str,
) -> None:
    for place in PLACES:
        name = place.name.rpartition(".")[2]
        if place.path == path and place.backend == "reference" and name not in METHODS:
            first = place.docstring.partition("\n")[0]
            assert first.endswith(".") and first != "...", place.name


@pytest.mark.parametrize("path", sorted({place.path for place in PLACES}))
def test_no_backend_says_again_what_it_shares(path: str) -> None:
    module = ".".join(["lockstep", *Path(path).with_suffix("").parts])
    for place in PLACES:
        name = place.name.rpartition(".")[2]
        if place.path == path and name not in METHODS:
            shared = set(long_lines(text_of(place.name, module)))
            own = long_lines(place.docstring)
            # The reference has the first line, so that its source can be read alone.
            again = shared & set(own[place.backend == "reference" :])
            assert not again, (place.name, again)


def long_lines(docstring: str) -> list[str]:
    """Return the lines of a docstring that are no headings."""
    lines = map(str.strip, docstring.splitlines())
    return [line for line in lines if len(line) >= 16]


ORIGIN = "\nOrigin: "
CALLABLES = sorted({(p.backend, p.name) for p in PLACES if p.name in TEXTS})


@pytest.mark.parametrize(("backend", "name"), CALLABLES)
def test_every_argument_is_explained_once(backend: str, name: str) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    module = registry.load(backend)
    thing = getattr(module, name, None) or getattr(module.lr_policies, name)
    assert names_in_args(thing) == sorted(arguments_of(thing))
    first = (inspect.getdoc(thing) or "").splitlines()[0]
    assert first and not first.startswith("...")


ABBREVIATED = [place for place in PLACES if place.docstring.startswith("...")]


@pytest.mark.parametrize(
    ("backend", "path"), sorted({(p.backend, p.path) for p in ABBREVIATED})
)
def test_the_dots_of_a_docstring_are_replaced(backend: str, path: str) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    name = ".".join(["lockstep", *Path(path).with_suffix("").parts])
    module = importlib.import_module(name)
    for place in ABBREVIATED:
        if place.path == path:
            thing = attrgetter(place.name)(module)
            assert not (inspect.getdoc(thing) or "...").startswith("..."), place.name


WITH_ORIGIN = [(backend, name) for backend, name in CALLABLES if ORIGIN in TEXTS[name]]


@pytest.mark.parametrize(("backend", "name"), WITH_ORIGIN)
def test_the_origin_is_told_where_there_is_one(backend: str, name: str) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    assert ORIGIN in (inspect.getdoc(getattr(registry.load(backend), name)) or "")


BASES = {
    "reference": "AdamOptimizer",
    "tf": "MultitaskOptimizerWrapper",
    "keras3": "AdamOptimizer",
    "pytorch": "AdamOptimizer",
}
"""A class of each backend that has the interface's methods as they are."""


WITH_ARGUMENTS = sorted(
    {
        (place.backend, method)
        for place in PLACES
        for method in [place.name.rpartition(".")[2]]
        if "Args:" in METHODS.get(method, "")
    }
)


@pytest.mark.parametrize(("backend", "name"), WITH_ARGUMENTS)
def test_methods_have_the_docstrings_of_the_interface(backend: str, name: str) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    method = getattr(getattr(registry.load(backend), BASES[backend]), name)
    assert names_in_args(method) == sorted(set(arguments_of(method)) - {"self"})
    last_line = METHODS[name].splitlines()[-1]
    assert last_line in (inspect.getdoc(method) or "").splitlines()


def names_in_args(thing: Any) -> list[str]:
    """Return the names that the section "Args" of a docstring explains."""
    text = re.search(r"^Args:\n((?:    .*\n?)+)", inspect.getdoc(thing) or "", re.M)
    entries = re.findall(r"^    (\S[^:]*): ", text[1] if text else "", re.M)
    return sorted(name for entry in entries for name in entry.split(", "))


def arguments_of(thing: Any) -> list[str]:
    """Return the names of the arguments; ``**options`` are those of Keras."""
    parameters = inspect.signature(thing).parameters.values()
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    named = [p.name for p in parameters if p.kind not in several]
    return named + [p.name for p in parameters if p.name == "options"]
