"""The table of what was measured: tool and question by backend and device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.pages.findings.page import Answered
from harness.pages.markup.templating import render

CONVERGENCE, THROUGHPUT = "convergence", "throughput"
AREAS: Mapping[tuple[str, str], Sequence[str]] = {
    ("Multitask", CONVERGENCE): (
        "absent_tasks_tuned",
        "absent_tasks",
        "absent_genres",
        "skipping_hurts",
    ),
    ("Multitask", THROUGHPUT): ("training_throughput", "multitask_overhead"),
    ("Embedding clipping", CONVERGENCE): ("recommender", "link_prediction"),
    ("Embedding clipping", THROUGHPUT): ("training_throughput", "row_clipping"),
    ("Mixed precision", CONVERGENCE): ("mixed_precision", "mixed_precision_text"),
    ("Mixed precision", THROUGHPUT): (
        "throughput",
        "training_throughput",
        "loss_scaling",
        "masters",
    ),
    ("Asynchronous workers", CONVERGENCE): (
        "asynchronous_rates",
        "asynchronous_workers",
    ),
    ("Asynchronous workers", THROUGHPUT): ("worker_throughput", "slow_link"),
}
"""Tool and question -> the experiments and benchmarks that ask it."""

BACKENDS = {"pytorch": "PyTorch", "tf": "TensorFlow", "keras3": "Keras 3"}
DEVICES = {"cpu": "CPU", "cuda": "GPU"}


def coverage(experiments: Sequence[Answered], benchmarks: Sequence[Answered]) -> str:
    """Return the table; a cell has links, or says that nothing was measured there.

    The asynchronous workers of the NumPy reference are simulated, on no device.
    """
    found = {each.question.name: ("", each) for each in experiments}
    found |= {each.question.name: ("../benchmarks/", each) for each in benchmarks}

    def links(names: Sequence[str], backend: str, device: str) -> list[tuple[str, str]]:
        return [
            (f"{folder}{each.question.name}.html", each.question.title)
            for folder, each in map(found.__getitem__, filter(found.get, names))
            if (backend, device) in places_of(each)
        ]

    rows = [
        (
            f"{tool}: {asks}",
            [
                [(text, links(names, backend, key)) for key, text in DEVICES.items()]
                for backend in BACKENDS
            ]
            + [[("Simulated", links(names, "reference", "cpu"))]],
        )
        for (tool, asks), names in AREAS.items()
    ]
    return render("coverage.html.jinja", names=[*BACKENDS.values(), "NumPy"], rows=rows)


def places_of(answered: Answered) -> set[tuple[str, str]]:
    """Return backend and device of published records."""
    if not answered.published or answered.finding is None:
        return set()
    subjects = answered.finding.provenance.get("subjects", [])
    return {(subject["backend"], subject["device"]) for subject in subjects}
