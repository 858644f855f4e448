"""Records of benchmarks as measuring processes would write them, made up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.bench.compare import PROCESSES
from harness.bench.declare import Benchmark
from harness.records.files import Store, folder
from harness.records.record import Record
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
) -> None:
    """Write records in which a variant's time is its factor, in milliseconds.

    From process to process the times of ours differ by up to ``spread``, as a share.
    """
    for backend in benchmark.backends:
        with Store(folder(benchmark.name, publish, root), backend) as store:
            common = {
                "environment": store.environment(ENVIRONMENT),
                "scale": scale,
                "command": "bench",
                "start": "2026-01-01T00:00:00Z",
                "duration": 1.0,
                "load": 0.1,
            }
            for process in range(processes):
                off = 1 + spread * (2 * process / max(processes - 1, 1) - 1)
                for setup in benchmark.setups(backend).values():
                    series = {
                        name: [
                            factors.get(name.removesuffix(AGAIN), 1.0)
                            * (off if name == "ours" else 1.0)
                            * (1 + 0.01 * (k % 5))
                            / 1e3
                            for k in range(20)
                        ]
                        for name in setup.variants
                    }
                    record = Record(
                        experiment=benchmark.name,
                        id=setup.id,
                        task=benchmark.task,
                        config=dict(setup.config),
                        seed=0,
                        subject={"backend": backend, "device": device, "lockstep": "0"},
                        status="ok",
                        reason="",
                        series=series,
                        summary={},
                        process=process,
                        **common,
                    )
                    store.append(record)
