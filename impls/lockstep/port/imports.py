"""Import statements: their replacements, and the names bound to old modules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, groupby

from lockstep.port.names import MODULES, canonical, new_name
from lockstep.port.syntax import Alias, Import, Program

V1 = "tensorflow.compat.v1"
STRICT_IMPORT = "from lockstep.tf import strict"

NOT_V1 = frozenset(
    {"compat", "contrib", "core", "estimator", "examples", "keras", "python"}
)
"""Modules of TensorFlow that differ in ``compat.v1`` or do not exist there."""


@dataclass(frozen=True)
class Target:
    """The replacement of one imported name: ``from module import name as alias``."""

    module: str | None  # None for ``import name as alias``.
    name: str
    alias: str | None

    def __str__(self) -> str:
        return f"{self.name} as {self.alias}" if self.alias else self.name


def lines(targets: Iterable[Target]) -> list[str]:
    """Return import statements, one for successive names from the same module."""
    statements = []
    for module, group in groupby(targets, lambda target: target.module):
        begin = f"from {module} import" if module else "import"
        statements.append(f"{begin} {', '.join(map(str, group))}")
    return statements


@dataclass(frozen=True)
class Binding:
    """A name in a program that is bound to an old module."""

    name: str
    module: str
    complete: bool  # Whether Lockstep has every name that the program uses from it.


def bindings(program: Program) -> dict[str, Binding]:
    """Return the names that imports or assignments bind to old modules."""
    named = {entry.name: entry.full for entry in program.assigned}
    for statement in program.imports:
        for alias in statement.aliases:
            if statement.module is not None:
                full = f"{statement.module}.{alias.name}"
                named.setdefault(alias.alias or alias.name, full)
            elif alias.alias is not None:
                named.setdefault(alias.alias, alias.name)
    return {
        name: Binding(
            name,
            canonical(module),
            all(
                has_new_name(used.full)
                for used in program.spellings
                if used.whole and used.text.startswith(f"{name}.")
            ),
        )
        for name, module in named.items()
        if canonical(module) in MODULES
    }


def calls_behavior(program: Program) -> bool:
    """Whether the program itself switches TensorFlow 2's behavior on or off."""
    calls = ("tensorflow.disable_v2_behavior", "tensorflow.enable_v2_behavior")
    return any(canonical(spelling.full) in calls for spelling in program.spellings)


def is_v1(full: str) -> bool:
    """Whether a name of TensorFlow 1 is in ``compat.v1`` but not in Lockstep.

    Example:
        >>> is_v1("tensorflow.train.Saver"), is_v1("tensorflow.contrib.slim")
        (True, False)
    """
    root, _, rest = canonical(full).partition(".")
    public = root == "tensorflow" and rest.split(".")[0] not in (*NOT_V1, "")
    return public and full not in MODULES and not has_new_name(full)


def has_new_name(full: str) -> bool:
    """Whether Lockstep has a name, or the object of which it is an attribute."""
    return any(map(new_name, accumulate(full.split("."), "{}.{}".format)))


def targets(statement: Import, old: dict[str, Binding]) -> list[Target]:
    """Return the replacements of an import statement's names, in order."""
    return [
        _of_import(alias, old)
        if statement.module is None
        else _of_from(statement.module, alias, old)
        for alias in statement.aliases
    ]


def _of_import(alias: Alias, old: dict[str, Binding]) -> Target:
    name, same = alias.name, Target(None, alias.name, alias.alias)
    if name == "tensorflow":
        return Target(None, V1, alias.alias or name)
    if alias.alias or not name.startswith("tensorflow."):
        binding = old.get(alias.alias or name.split(".")[0])
        moved = moved_module(binding) if binding else None
        if moved is None and is_v1(name):
            moved = Target(None, _in_v1(name), alias.alias)
        return moved or same
    # Such an import binds the name ``tensorflow`` itself.
    is_old = is_v1(name) or name in MODULES
    return Target(None, V1, "tensorflow") if is_old else same


def _of_from(module: str, alias: Alias, old: dict[str, Binding]) -> Target:
    full = f"{module}.{alias.name}"
    target, binding = new_name(full), old.get(alias.alias or alias.name)
    moved = moved_module(binding) if binding else None
    if target is None and moved is not None:
        return moved
    if target is not None:
        module = target[0]
    elif is_v1(full):
        module = _in_v1(module)
    return Target(module, alias.name, alias.alias)


def _in_v1(name: str) -> str:
    return canonical(name).replace("tensorflow", V1, 1)


def moved_module(binding: Binding) -> Target | None:
    """Return the replacement of an old module; None if the program still needs it."""
    if not binding.complete:
        return None
    package, _, name = MODULES[binding.module].rpartition(".")
    return Target(package, name, binding.name if binding.name != name else None)
