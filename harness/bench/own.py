"""A benchmark of a user's own optimizer, see ``harness.tasks.own``."""

from __future__ import annotations

import json
from collections.abc import Sequence

from harness.bench.declare import Benchmark, read
from harness.records.files import folder
from harness.tasks.own import described

NAME = "own_optimizer"
MODELS = {"S400": "400 small tensors", "T25M": "23M parameters"}
HEAD = """question = "How long does a step of an own optimizer take?"
title = {name}
task = "own_optimizer"
answer = "A step of the optimizer takes {{}}"
peers = {{ adam = "Adam", yours = "the same without a wrapper" }}
rounds = {{ quick = 5, std = 30 }}
"""
ROWS = """
[[row]]
backend = "{backend}"
setup = {{ model = "{model}", file = {file}, text = {text} }}
peer = "adam"
what = "your optimizer, {size}"

[[row]]
backend = "{backend}"
setup = {{ model = "{model}", file = {file}, text = {text} }}
arm = "wrapped"
peer = "yours"
what = "in the multitask wrapper, {size}"
"""


def benchmark(place: str, backends: Sequence[str]) -> Benchmark:
    """Declare the benchmark of ``mine.py:make``, in ``results/local``.

    Raises:
        HarnessError: the file cannot be used.
    """
    # A string of JSON is one of TOML, also with a quotation mark in it.
    of = {key: json.dumps(value) for key, value in described({"file": place}).items()}
    path = folder(NAME) / f"{NAME}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        ROWS.format(backend=backend, model=model, size=size, **of)
        for backend in backends
        for model, size in MODELS.items()
    ]
    path.write_text("".join([HEAD.format(**of), *rows]), "utf-8")
    return read(path)
