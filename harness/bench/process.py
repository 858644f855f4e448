"""A measuring process: pytest-benchmark in a fresh Python process, and its file.

The file is the record: ``results/NAME/START-BACKEND-SCALE-PROCESS.json`` has an entry
for each setup. ``extra_info`` of an entry has the times of each variant.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.bench.declare import Setup
from harness.processes.children import Children
from harness.records.record import Code, Record, digest

Content = dict[str, Any]
"""A file of pytest-benchmark."""


@dataclass(frozen=True)
class Job:
    """One measuring process.

    Attributes:
        number: number of the process among those of its backend.
        setups: the setups that it measures: all that are missing, of all benchmarks.
        library: the folder with another ``lockstep`` to measure; None: this one.
    """

    backend: str
    number: int
    device: str
    scale: str
    setups: Sequence[Setup]
    declared: Sequence[Path]
    library: Path | None = None


@dataclass(frozen=True)
class Measurement:
    """The result of a process.

    Attributes:
        content: its file, with the times of the setups that did not fail.
        reasons: key of a setup that failed -> why.
    """

    content: Content
    reasons: Mapping[str, str]

    @property
    def seconds(self) -> Mapping[str, Mapping[str, Sequence[float]]]:
        """Key of a setup -> variant -> the time of each round."""
        infos = [entry["extra_info"] for entry in self.content["benchmarks"]]
        return {info["setup"]: info["seconds"] for info in infos}


FAILED = "@failed "
"""What begins the line on which a measuring process prints a setup and a reason."""


def measure(job: Job, children: Children | None = None) -> Measurement:
    """Measure the setups of a job in a fresh process, one of some ``children``.

    If the process crashes, its exit status is the reason of every setup without times.
    """
    reasons: dict[str, str] = {}

    def on_line(line: str) -> None:
        if line.startswith(FAILED):
            key, reasons[key] = json.loads(line.removeprefix(FAILED))

    with tempfile.TemporaryDirectory() as temporary:
        native = Path(temporary) / "times.json"
        words = _words(job, native)
        child = (children or Children()).start("pytest", words, job.library)
        status, errors = child.exchange("", on_line)
        content: Content = {"benchmarks": []}
        if native.exists():
            content = json.loads(native.read_text("utf-8"))
    last = errors.strip().splitlines()[-1:]
    crash = ": ".join([f"the measuring process ended with status {status}", *last])
    timed = Measurement(content, reasons).seconds
    failed = [setup.key for setup in job.setups if setup.key not in timed]
    return Measurement(content, {key: reasons.get(key, crash) for key in failed})


def _words(job: Job, native: Path) -> list[str]:
    """Return the arguments of pytest."""
    options = {
        "backend": job.backend,
        "device": job.device,
        "scale": job.scale,
        "process": job.number,
        "benchmark-json": native,
    }
    library = ["-o", f"pythonpath={job.library} ."] if job.library else []
    return [
        *("harness/bench/bench_setups.py", "-s", "-p", "no:cacheprovider", *library),
        # A warning of a framework, an error in the tests, does not stop a measurement.
        *("-W", "default"),
        *(f"--{name}={value}" for name, value in options.items()),
        *(f"--declared={path}" for path in job.declared),
        *(f"--setup={setup.key}" for setup in job.setups),
    ]


def write(path: Path, content: Content) -> None:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    text = json.dumps(content, separators=(",", ":"))
    unfinished.write_text(f"{text}\n", "utf-8")
    unfinished.replace(path)


def read(home: Path, backend: str) -> list[Record]:
    """Return the measurements of a backend in a folder, in the order of their start."""
    records = []
    for path in sorted(home.glob(f"*-{backend}-*.json")):
        content = json.loads(path.read_text("utf-8"))
        about = content["machine_info"]
        for entry in content["benchmarks"]:
            info = dict(entry["extra_info"])
            experiment, _, identifier = info.pop("setup").partition("/")
            record = Record(
                experiment=experiment,
                id=identifier,
                subject=about["subject"],
                environment=digest(about["environment"], 8),
                series=info.pop("seconds"),
                code=Code(**info.pop("code")),
                seed=0,
                status="ok",
                reason="",
                summary={},
                **info,
            )
            records.append(record)
    return records
