"""The page on workers of several machines: its commands exist in the installed Ray."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "workers" / "machines.md").read_text("utf-8")
COMMANDS = re.findall(r"^\$ ray (\S+)(.*)$", PAGE, re.M)


@pytest.mark.parametrize(("name", "options"), COMMANDS)
def test_a_command_of_ray_has_the_options_that_the_page_gives(
    name: str, options: str
) -> None:
    pytest.importorskip("ray", reason="needs Ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.scripts.scripts import cli
    known = {word for p in cli.commands[name].params for word in p.opts}
    given = re.findall(r"--[\w-]+", options)
    assert given
    assert set(given) <= known
