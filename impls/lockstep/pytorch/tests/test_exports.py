"""What the package exports, and that its text is parallel to the reference's."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from lockstep import pytorch
from lockstep.interface import EXPORTS, Wrapper
from lockstep.messages.optimizers.parameters import RULES
from lockstep.tests.test_package import pure, signatures

PYTORCH = Path(pytorch.__file__).parent
REFERENCE = PYTORCH.parent / "reference"
WRAPPERS = [
    "AGNOptimizer",
    "MixedPrecisionLossScaleOptimizer",
    "MixedPrecisionOptimizerWrapper",
    "MultitaskOptimizerWrapper",
    "VariableClippingOptimizer",
]
METHODS = [name for name in vars(Wrapper) if not name.startswith("_")]


SHARED = sorted(
    path.relative_to(PYTORCH).as_posix()
    for path in PYTORCH.rglob("*.py")
    if path.name != "__init__.py"
    and "tests" not in path.parts
    and (REFERENCE / path.relative_to(PYTORCH)).exists()
    and pure(path)
)


@pytest.mark.parametrize("name", SHARED)
def test_a_file_of_rules_has_the_reference_functions_with_the_same_arguments(name):
    ours, theirs = signatures(PYTORCH / name), signatures(REFERENCE / name)
    common = ours.keys() & theirs.keys()
    public = {n for n in theirs if n in ast.literal_eval(_all_of(REFERENCE / name))}
    assert public - {"densify"} <= common | {"rsqrt"}
    assert {n: ours[n] for n in common} == {n: theirs[n] for n in common}


def _all_of(path: Path) -> ast.expr:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )


def test_every_rule_has_its_file():
    rules = {spec.class_name for spec in RULES.values()}
    assert rules <= set(EXPORTS)
    assert len(SHARED) >= 9


@pytest.mark.parametrize("spec", RULES.values(), ids=RULES)
def test_a_constructor_takes_the_arguments_of_tf_in_their_order(spec):
    signature = inspect.signature(getattr(pytorch, spec.class_name))
    found = list(signature.parameters.values())
    assert found[0].name == "params"
    expected = spec.signature.parameters.values()
    for parameter, argument in zip(expected, found[1:], strict=False):
        assert argument.name == parameter.name
        if argument.default is not inspect.Parameter.empty and argument.name != "name":
            assert argument.default == parameter.default


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", METHODS)
def test_methods_take_the_arguments_of_every_wrapper(name, wrapper):
    expected = inspect.signature(getattr(Wrapper, name)).parameters
    found = inspect.signature(getattr(getattr(pytorch, wrapper), name)).parameters
    assert [(p.name, p.default) for p in found.values()] == [
        (p.name, p.default) for p in expected.values()
    ]
