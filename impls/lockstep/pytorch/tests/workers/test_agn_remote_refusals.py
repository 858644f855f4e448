"""What a center in another process refuses, in one sentence and before it moves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import Parameter

from lockstep.errors import DtypeError, UnsupportedError
from lockstep.messages.ray import CenterLostError
from lockstep.pytorch import AGNCustomGetter, AGNOptimizer
from lockstep.pytorch.tests.workers.worker_pairs import RemoteTeam, sgd
from lockstep.pytorch.workers.remote import RemoteCenter
from lockstep.ray.tests.local_host import LocalHost


def test_a_push_with_nan_is_refused_and_a_new_round_goes_on(tmp_path) -> None:
    team = RemoteTeam(sgd, LocalHost(tmp_path), 1, 1).start()
    (weight, *_), worker = team.models[0].parameters(), team.workers[0]
    before = team.shared()
    weight.grad = torch.full_like(weight, float("nan"))
    with pytest.raises(ValueError, match=r"inf or NaN for '0\.weight'; nothing has mo"):
        worker.step()
    for one, other in zip(team.shared(), before, strict=True):
        assert torch.equal(one, other)
    worker.get_init_op(0)
    team.step(0)
    assert team.host.center.counters.rounds == 1


def other(**named):
    def join(host) -> None:
        getter = AGNCustomGetter("cpu", center=RemoteCenter(host))
        opt = torch.optim.SGD(getter(named.items()), lr=0.5)
        AGNOptimizer(opt, 2, getter)

    return join


def other_commit(host) -> None:
    getter = AGNCustomGetter("cpu", center=RemoteCenter(host))
    opt = torch.optim.SGD(getter([("w", Parameter(torch.ones(2)))]), lr=0.5)
    AGNOptimizer(opt, 2, getter, commit="delta")


MISFITS = {
    "shape": (other(w=Parameter(torch.ones(3))), r"'w' to be torch\.float32 \[2\]"),
    "dtype": (other(w=Parameter(torch.ones(2).double())), r"got torch\.float64 \[2\]"),
    "name": (other(v=Parameter(torch.ones(2))), "names that the center has, 'w', got"),
    "commit": (other_commit, "commit='gradient', as the first worker of the center"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_worker_that_does_not_fit_is_refused(misfit, tmp_path) -> None:
    join, told = MISFITS[misfit]
    host = LocalHost(tmp_path)
    other(w=Parameter(torch.ones(2)))(host)
    with pytest.raises(UnsupportedError, match=told):
        join(host)
    assert host.center.present()["w"].tolist() == [1.0, 1.0]


def test_weights_that_come_after_the_center_are_refused(tmp_path) -> None:
    getter = AGNCustomGetter("cpu", center=RemoteCenter(LocalHost(tmp_path)))
    opt = torch.optim.SGD(getter([("w", Parameter(torch.ones(2)))]), lr=0.5)
    AGNOptimizer(opt, 1, getter)
    with pytest.raises(UnsupportedError, match="names that the center has, 'w', got"):
        getter([("late", Parameter(torch.ones(2)))])


def test_a_dtype_that_numpy_lacks_is_refused(tmp_path) -> None:
    getter = AGNCustomGetter("cpu", center=RemoteCenter(LocalHost(tmp_path)))
    with pytest.raises(DtypeError, match=r"got torch\.bfloat16 for 'w'; train float32"):
        getter([("w", Parameter(torch.ones(2, dtype=torch.bfloat16)))])


def test_a_first_worker_that_is_refused_leaves_no_center_behind(tmp_path: Path) -> None:
    (tmp_path / "center.npz").write_bytes(b"something else")
    host = LocalHost(tmp_path)
    with pytest.raises(UnsupportedError, match="move the file away"):
        RemoteTeam(sgd, host, 1)
    assert not host.exists()


def test_a_center_that_came_back_without_its_file_is_lost(tmp_path: Path) -> None:
    team = RemoteTeam(sgd, LocalHost(tmp_path), 1, 1).start()
    (tmp_path / "center.npz").unlink()
    team.host.crash()
    with pytest.raises(CenterLostError, match="directory that all machines can read"):
        team.step(0)
