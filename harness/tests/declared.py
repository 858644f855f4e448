"""An experiment of one small arm, as the text of a TOML file."""

from __future__ import annotations

from pathlib import Path

from harness.declarations import declare
from harness.declarations.declare import SCALES, Experiment

TEXT = """question = "Does it go on?"
title = "Tiny"
task = "multitask_digits"
backends = ["pytorch"]
budget_minutes = 1
[fixed]
batch = 2
hidden = 2
checkpoints = 2
absence = [1]
presence = 0.5
wrapper = "default"
[vary]
optimizer = [{ name = "GradientDescent", learning_rate = 0.1 }]
"""


def declared(
    folder: Path,
    seeds: int = 60,
    steps: int = 20,
    changes: dict[str, str] | None = None,
    more: str = "",
) -> Experiment:
    """Write ``tiny.toml`` into a folder and read it.

    Args:
        seeds, steps: of every scale.
        changes: what of the text is replaced by what.
        more: further tables.
    """
    text = TEXT
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    for name in SCALES:
        text += f'[scale.{name}]\nseeds = {seeds}\nsteps = {steps}\nbecause = "tiny"\n'
    path = folder / "tiny.toml"
    path.write_text(text + more, "utf-8")
    return declare.read(path)
