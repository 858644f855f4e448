"""Sweeps on the nodes of a Ray cluster: a node that dies takes no run along."""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.processes import cluster
from harness.processes.children import Child, Children
from harness.processes.environment import child_variables
from harness.runs import run
from harness.runs.run import Request
from harness.runs.tests.nodes import loopback_only
from harness.runs.tests.toy import records, toy, toy_task
from harness.tests.declared import declared

__all__ = ["toy_task"]

RUNS = 12


# Its like, without Ray: test_the_runs_of_a_lost_node_are_done_by_another.
@pytest.mark.soak
def test_a_node_that_dies_loses_no_run_and_repeats_none(tmp_path: Path) -> None:
    for needed in ("ray", "torch"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        tiny = declared(folder, seeds=RUNS)
    command = [sys.executable, "-m", "harness.runs.tests.nodes", str(there)]
    done = subprocess.run(
        [*loopback_only(), *command],
        env=child_variables(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["report"] == f"pytorch: done; {RUNS} ok; 0 kept"
    # The node, and then a core for another worker.
    assert len(said["lost"]) == 2, said

    run.sweep([tiny], Request("quick", root=here))

    found = [records(folder, "pytorch", "local/tiny") for folder in (there, here)]
    elsewhere, alone = ({r.seed: r.series for r in each} for each in found)
    assert len(found[0]) == RUNS
    assert elsewhere == alone


class Nowhere(cluster.Cluster):
    """A cluster whose nodes are gone before a worker starts."""

    cores = 2

    def __init__(self, address: str) -> None:
        self._ray, self.ended = SimpleNamespace(shutdown=lambda: None), False

    def start(self, module: str, arguments: Any) -> Any:
        raise cluster.NodeLostError("no node had a core free")


def test_without_any_node_left_the_sweep_stops_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Cluster", Nowhere)
    tiny = declared(tmp_path, seeds=RUNS)
    request = Request("quick", root=tmp_path, jobs=None, cluster="auto")
    (report,) = run.sweep([tiny], request)
    assert report.counts.total() == 0
    assert report.stopped == (
        f"no node had a core free. {RUNS} runs are missing; "
        "the same command goes on where this one stopped."
    )
    assert records(tmp_path, "pytorch", "local/tiny") == []


class LosingANode(Children):
    """Stands for two nodes of a cluster; the second is lost while both do a run.

    Its core does not come back: the worker that is to follow it finds none.
    """

    cores = 2

    def __init__(self, address: str) -> None:
        super().__init__()
        self.numbers = itertools.count(1)
        self.both = threading.Barrier(2, timeout=60)

    def start(self, module: str, arguments: Any, first: Path | None = None) -> Child:
        node = next(self.numbers)
        if node == 3:
            raise cluster.NodeLostError("no node had a core free")
        child = super().start(module, arguments)
        if node > 2:
            return child
        send = child.send

        def send_or_lose(line: str) -> None:
            """Send the first run when both have one."""
            child.send = send  # type: ignore[method-assign]
            self.both.wait()
            if node == 2:
                child.stop()
                raise cluster.NodeLostError("the second node is lost")
            send(line)

        child.send = send_or_lose  # type: ignore[method-assign]
        return child


@pytest.mark.usefixtures("toy_task")
def test_the_runs_of_a_lost_node_are_done_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = toy(tmp_path)
    run.sweep([experiment], Request("quick", root=tmp_path / "alone"))
    monkeypatch.setattr(run, "Cluster", LosingANode)
    request = Request("quick", root=tmp_path / "lost", jobs=2, cluster="auto")
    for report in run.sweep([experiment], request):
        assert (report.failed, report.counts) == (False, {"ok": 8})
        there, alone = (
            {r.id: r.outcome for r in records(tmp_path / place, report.backend)}
            for place in ("lost", "alone")
        )
        assert there == alone and len(there) == 8


class RayError(Exception):
    """Stands for ``ray.exceptions.RayError``."""


def ray_of(answers: dict[str, Any]) -> Any:
    """Stand in for Ray, with nodes that answer so."""

    def get(answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    left = iter(answers.values())
    options = SimpleNamespace(remote=lambda: next(left))
    asked = SimpleNamespace(options=lambda scheduling_strategy: options)
    nodes = [{"NodeID": n, "NodeManagerAddress": n, "Alive": True} for n in answers]
    strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda *_, soft: None)
    return SimpleNamespace(
        nodes=lambda: nodes,
        get=get,
        remote=lambda num_cpus: lambda function: asked,
        util=SimpleNamespace(scheduling_strategies=strategies),
        exceptions=SimpleNamespace(RayError=RayError),
    )


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (("abc", False), "got commit abc on b;"),
        (RayError("Traceback\nModuleNotFoundError: harness"), "harness on b;"),
    ],
)
def test_a_node_with_other_code_is_refused(answer: Any, got: str) -> None:
    own = cluster.commit_of()
    cluster.require_same_code(ray_of({"a": own, "b": own}))
    with pytest.raises(HarnessError, match="every node") as error:
        cluster.require_same_code(ray_of({"a": own, "b": answer}))
    assert got in str(error.value)


def test_without_ray_a_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(HarnessError, match="run pip install ray"):
        cluster.Cluster("auto")


def test_an_address_without_a_cluster_is_refused() -> None:
    pytest.importorskip("ray")
    with pytest.raises(HarnessError, match="ray start --head"):
        cluster.Cluster("nowhere")
