"""Clusters: servers of TensorFlow 1 in one process and in several, and closures.

Each is in a child process, for what it does to TensorFlow lasts.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.tf.tests.addresses import free_addresses
from lockstep.tf.tests.agn_teams import EVENTS, replayed

# Servers of one process

CLUSTER = """
import threading
if sys.argv[1] == "v1":
    v1.disable_v2_behavior()
else:
    v1.disable_eager_execution()
import lockstep.tf{module} as names
from lockstep.tf.tests.addresses import free_addresses
from lockstep.tf.tests.agn_cluster import Worker, momentum, serve
v1.logging.set_verbosity(v1.logging.ERROR)
servers = []

def start(workers):
    jobs = dict(ps=free_addresses(1), worker=free_addresses(workers))
    cluster = tf.train.ClusterSpec(jobs)
    servers.append(serve(cluster, "ps", 0))
    return cluster
"""

IN_TURN = """
cluster = start(3)
team = [Worker(cluster, task, momentum, names=names) for task in range(2)]
for number, gradient in {events}:
    print(team[number].step(gradient))
print(Worker(cluster, 2, momentum, names=names).read())
"""

AT_ONCE = """
cluster = start(2)
rule = lambda: v1.train.GradientDescentOptimizer(0.25, use_locking=True)
team = [Worker(cluster, task, rule, names=names) for task in range(2)]

def train(worker):
    for k in range(40):
        worker.step([1.0, 0.5])

threads = [threading.Thread(target=train, args=[worker]) for worker in team]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print([team[0].read()[1], team[0].read()[4]])
"""

RESTART = """
folder = sys.argv[2]
for phase in range(2):
    # A parameter server that is new knows nothing of the one before.
    worker = Worker(start(1), 0, lambda: v1.train.AdamOptimizer(0.25), folder)
    print(worker.read())
    for gradient in ([0.5, 1.0], [0.25, -1.0], [2.0, 2.0]):
        worker.step(gradient)
    print(worker.read())
    worker.session.close()
    print(sorted(tf.train.load_checkpoint(folder).get_variable_to_shape_map()))
"""


@pytest.mark.parametrize(("module", "mode"), [("", "v2"), (".strict", "v1")])
def test_workers_of_a_cluster(
    child: Callable[..., str], module: str, mode: str, tmp_path: Path
) -> None:
    """Turns are the reference's, threads lose nothing, and sessions start again."""
    script = CLUSTER.replace("{module}", module) + IN_TURN + AT_ONCE + RESTART
    script = script.replace("{events}", repr(EVENTS))
    printed = child(script, mode, tmp_path).splitlines()
    *states, late, at_once = map(ast.literal_eval, printed[:-6])
    expected = replayed()
    assert states == expected
    # Who joins late begins with the shared weights as they are, and counts from 0.
    w, center, accumulator, local_step, global_step = late
    assert w == center == expected[-1][1] != [1.0, -2.0]
    assert (accumulator, local_step, global_step) == ([0.0, 0.0], 0, expected[-1][4])
    # Nothing is lost of what threads push at once: 40 rounds, their means exact.
    assert at_once == [[-9.0, -7.0], 40]

    _, end, saved, again, after, _ = map(ast.literal_eval, printed[-6:])
    slots = [f"global_center_variable/net/w/{name}" for name in ("Adam", "Adam_1")]
    # As the original's: what is a worker's own is not in it.
    assert saved == ["global_center_variable/net/w", *slots, "global_step"]
    assert end[0] != end[1] != [1.0, -2.0]
    assert again == [end[1], end[1], [0.0, 0.0], 0, end[4]]
    assert after[4] == end[4] + 1


# Processes

# After so many seconds a process is killed, and what waits for its answer fails.
SECONDS = 200.0


class Task:
    """One process of a cluster, with its log in a file."""

    def __init__(self, job: str, number: int, addresses: str, folder: Path) -> None:
        script = Path(__file__).with_name("agn_cluster.py")
        self.log = folder / f"{job}{number}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(script), job, str(number), addresses, str(folder)],
                env={
                    **os.environ,
                    "PYTHONPATH": str(Path(lockstep.__file__).parents[1]),
                    "CUDA_VISIBLE_DEVICES": "",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.limit = threading.Timer(SECONDS, self.process.kill)
        self.limit.start()

    def begin(self, gradient: list[float]) -> None:
        """Let the worker take a step."""
        print(json.dumps(gradient), file=self.process.stdin, flush=True)

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, self.log.read_text()[-2000:]
        return line

    def step(self, gradient: list[float]) -> list[Any]:
        """Take a step and return the state after it."""
        self.begin(gradient)
        return json.loads(self.line())

    def wait_for_loss(self) -> None:
        """Wait until the log says that a server is lost."""
        while "This may be due to a preemption" not in self.log.read_text():
            assert self.process.poll() is None
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the process, if it still runs."""
        self.limit.cancel()
        self.process.kill()
        self.process.communicate()


@pytest.mark.slow
@pytest.mark.soak
def test_processes_train_as_the_reference_and_survive_the_parameter_server(
    tmp_path: Path,
) -> None:
    ps, *others = free_addresses(3)
    addresses = json.dumps({"ps": [ps], "worker": others})
    with ExitStack() as running:

        def start(job: str, number: int) -> Task:
            task = Task(job, number, addresses, tmp_path)
            running.callback(task.kill)
            return task

        server = start("ps", 0)
        assert server.line() == "ready"
        workers = [start("worker", number) for number in range(2)]
        begun = [json.loads(worker.line()) for worker in workers]
        assert begun == [[[1.0, -2.0], [1.0, -2.0], [0.0, 0.0], 0, 0]] * 2
        states = [workers[who].step(gradient) for who, gradient in EVENTS]
        assert states == replayed()
        saved = states[7]
        assert saved[4] == 4
        # The chief saves at its own rounds, so the fifth is in no checkpoint.
        assert workers[1].step([1.0, 1.0])[4] == 5

        server.kill()
        for worker in workers:
            worker.begin([0.5, -0.5])
        for worker in workers:
            worker.wait_for_loss()
        assert start("ps", 0).line() == "ready"
        for worker in workers:
            weight, center, accumulator, local_step, rounds = json.loads(worker.line())
            assert (center, rounds) == (saved[1], 4)
            assert weight != center
            assert (accumulator, local_step) == ([0.5, -0.5], 1)


# Closures

COORDINATOR = """
from lockstep import tf as ls
from lockstep.tf.tests.addresses import free_addresses

tf.get_logger().setLevel("ERROR")
jobs = dict(ps=free_addresses(1), worker=free_addresses(2))
cluster = tf.train.ClusterSpec(jobs)
config = v1.ConfigProto(inter_op_parallelism_threads=8)
servers = [
    tf.distribute.Server(cluster, job_name=job, task_index=task, config=config)
    for job in jobs for task in range(len(jobs[job]))
]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    cluster, rpc_layer="grpc"
)
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

def push(rule, *arguments, **options):
    strategy.run(lambda: rule.apply_gradients(*arguments, **options))
"""

PUSHES = """
with strategy.scope():
    center, rounds = tf.Variable([50.0, 50.0]), tf.Variable(0)
    inner = ls.GradientDescentOptimizer(0.25, use_locking=True)
    rule = ls.MultitaskOptimizerWrapper(inner)

@tf.function
def push_ones():
    push(rule, [(tf.ones([2]), center)], global_step=rounds)

for k in range(200):
    coordinator.schedule(push_ones)
coordinator.join()
print(center.numpy().tolist(), int(rounds))
"""

REFUSED = """
with strategy.scope():
    weight = tf.Variable([1.0, -2.0])
getter = ls.AGNCustomGetter("/cpu:0")
getter([("w", weight)])

def make():
    sgd = ls.GradientDescentOptimizer(0.5)
    return ls.AGNOptimizer(sgd, 2, getter, communication_period=2)

def make_in_scope():
    with strategy.scope():
        make()

optimizer = make()
pairs = [(tf.ones([2]), weight)]
step = tf.function(lambda: optimizer.apply_gradients(pairs))
step_as_replica = tf.function(lambda: push(optimizer, pairs))

for call in (
    make_in_scope,
    lambda: coordinator.schedule(step),
    lambda: coordinator.schedule(step_as_replica),
):
    try:
        call()
        coordinator.join()
        print("no error")
    except ValueError as error:
        print(type(error).__name__)
os._exit(0)
"""


@pytest.mark.slow
def test_pushes_of_closures_are_not_lost_and_the_wrapper_is_refused(
    child: Callable[..., str],
) -> None:
    pushes, *refusals = child(COORDINATOR + PUSHES + REFUSED).splitlines()
    assert pushes == "[0.0, 0.0] 200"
    assert refusals == ["UnsupportedError"] * 3
