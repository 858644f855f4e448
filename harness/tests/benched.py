"""Files of benchmarks as measuring processes would write them, made up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path

from harness.bench.compare import PROCESSES
from harness.bench.declare import Benchmark
from harness.records.files import folder
from harness.timing import AGAIN

ENVIRONMENT = {"python": "3"}


def write_times(
    benchmark: Benchmark,
    root: Path,
    factors: Mapping[str, float],
    processes: int = PROCESSES,
    spread: float = 0.01,
    publish: bool = True,
    scale: str = "std",
    device: str = "cpu",
    number: int | None = None,
) -> None:
    """Write files in which a variant's time is its factor, in milliseconds.

    From process to process the times of ours differ by up to ``spread``, as a share.
    With ``number``, only the file of that process is written.
    """
    numbers = range(processes) if number is None else [number]
    home = folder(benchmark.name, publish, root)
    start = f"2026-01-01T{len(list(home.glob('*.json'))):06}Z"
    for backend, process in product(benchmark.backends, numbers):
        off = 1 + spread * (2 * process / max(processes - 1, 1) - 1)
        entries = []
        for setup in benchmark.setups(backend):
            seconds = {
                name: [
                    factors.get(name.removesuffix(AGAIN), 1.0)
                    * (off if name == "ours" else 1.0)
                    * (1 + 0.01 * (k % 5))
                    / 1e3
                    for k in range(20)
                ]
                for name in setup.variants
            }
            told = {"scale": scale, "process": process, "code": {}, "start": start}
            about = {"setup": setup.key, "task": setup.task, "config": setup.config}
            entries.append({"extra_info": {**told, **about, "seconds": seconds}})
        subject = {"backend": backend, "device": device, "lockstep": "0"}
        machine = {"subject": subject, "environment": ENVIRONMENT}
        content = {"machine_info": machine, "benchmarks": entries}
        home.mkdir(parents=True, exist_ok=True)
        path = home / f"{start}-{backend}-{scale}-{process}.json"
        path.write_text(json.dumps(content), "utf-8")
