"""Which tests run, and where: ``--framework``, the mark ``sample``, shared processes.

``--framework torch``, ``tensorflow`` or ``none`` chooses the tests of one framework, so
that a process imports no other. Each test belongs to one of the three: by its folder
in ``impls``, else by the backend among its parameters, else to ``none``.

``@pytest.mark.sample(3)`` leaves three of a function's cases for each framework, spread
evenly, in the default run. The others are marked ``slow``.

Several processes share the tests, one file at a time. Files whose tests share something
that takes seconds to start have the same process.
"""

from __future__ import annotations

from typing import Any

import pytest

FRAMEWORKS = ("torch", "tensorflow", "none")
FOLDERS = {"pytorch": "torch", "tf": "tensorflow", "keras3": "tensorflow"}
ONE_PROCESS = (
    # They share a cluster.
    ("impls/lockstep/ray/tests/",),
    # They share processes in which every script leaves the frameworks as they were.
    ("harness/tests/test_examples.py", "harness/pages/tests/test_readme.py"),
)
"""Groups of files and folders whose tests run in the same process."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--framework", choices=FRAMEWORKS, help="only the tests of this framework"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Mark what samples leave out, and deselect the tests of other frameworks."""
    leave_samples(items)
    framework = config.getoption("--framework")
    if framework:
        others = [item for item in items if framework_of(item) != framework]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if framework_of(item) == framework]


def leave_samples(items: list[pytest.Item]) -> None:
    """Mark cases of sampled test functions as slow, but for some of each framework."""
    functions: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("soak"):
            name = item.nodeid.partition("[")[0]
            functions.setdefault((name, framework_of(item)), []).append(item)
    for cases in functions.values():
        mark = cases[0].get_closest_marker("sample")
        assert mark is not None
        (count,) = mark.args
        kept = {k * len(cases) // count for k in range(count)}
        for position, item in enumerate(cases):
            if position not in kept:
                item.add_marker(pytest.mark.slow)


def framework_of(item: pytest.Item) -> str:
    """Return the framework of a test."""
    parts = item.path.parts
    if "impls" in parts:
        folder = parts[parts.index("lockstep") + 1]
        if folder in FOLDERS:
            return FOLDERS[folder]
    callspec = getattr(item, "callspec", None)
    words = (
        [str(value).split() for value in callspec.params.values()] if callspec else []
    )
    found = {FOLDERS[word] for each in words for word in each if word in FOLDERS}
    return found.pop() if len(found) == 1 else "none"


def unit_of(test: str) -> str:
    """Return a name that a test shares with those that run in the same process."""
    file = test.split("::", 1)[0]
    return next((group[0] for group in ONE_PROCESS if file.startswith(group)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what hands out whole units, where files stay in one process."""
    if config.getvalue("dist") != "loadfile":
        return None
    # Not everywhere where tests run: environments for a GPU are without it.
    from xdist.scheduler import LoadFileScheduling

    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = unit_of
    return scheduler
