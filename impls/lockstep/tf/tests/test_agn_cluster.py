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
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

import lockstep
from lockstep import reference
from lockstep.tf.tests.addresses import free_addresses
from lockstep.tf.tests.agn_teams import EVENTS, replayed

# Servers of one process

CLUSTER = """
import threading
if sys.argv[1] == "v1":
    v1.disable_v2_behavior()
else:
    v1.disable_eager_execution()
from lockstep.tf{module} import AGNOptimizer
from lockstep.tf.tests.addresses import free_addresses
from lockstep.tf.tests.agn_cluster import Worker, momentum, serve
v1.logging.set_verbosity(v1.logging.ERROR)
names = sys.modules[AGNOptimizer.__module__ if "{module}" else "lockstep.tf"]
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
    """One process of a cluster; its lines of the log are read while it runs."""

    def __init__(self, job: str, number: int, addresses: str, folder: Path) -> None:
        script = Path(__file__).with_name("agn_cluster.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), job, str(number), addresses, str(folder)],
            env={
                **os.environ,
                "PYTHONPATH": str(Path(lockstep.__file__).parents[1]),
                "CUDA_VISIBLE_DEVICES": "",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._limit = threading.Timer(SECONDS, self.process.kill)
        self._limit.start()
        self._lost = threading.Event()
        self._log: list[str] = []
        self._reader = threading.Thread(target=self._read, args=[self.process.stderr])
        self._reader.start()

    def _read(self, log: IO[str]) -> None:
        """Read the log, and note where TensorFlow says that it lost a server."""
        for line in log:
            self._log.append(line)
            if "This may be due to a preemption" in line:
                self._lost.set()

    def begin(self, gradient: list[float]) -> None:
        """Let the worker take a step."""
        print(json.dumps(gradient), file=self.process.stdin, flush=True)

    def line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "".join(self._log[-30:])
        return line

    def state(self) -> list[Any]:
        """Return the state that a worker prints next."""
        return json.loads(self.line())

    def step(self, gradient: list[float]) -> list[Any]:
        """Take a step and return the state after it."""
        self.begin(gradient)
        return self.state()

    def wait_for_loss(self) -> None:
        """Wait until the log says that a server is lost."""
        assert self._lost.wait(SECONDS)

    def kill(self) -> None:
        """Kill the process, if it still runs."""
        self._limit.cancel()
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


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
        begun = [worker.state() for worker in workers]
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
            weight, center, accumulator, local_step, rounds = worker.state()
            assert (center, rounds) == (saved[1], 4)
            assert weight != center
            assert (accumulator, local_step) == ([0.5, -0.5], 1)


# Closures

RATE, MOMENTUM, PERIOD = 0.25, 0.5, 2
# The gradients of the steps of each round.
ROUNDS = [[[0.1 * k - 0.7, 0.3], [0.2, 0.05 * k]] for k in range(6)]

COORDINATOR = """
import json
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

ROUNDS_AND_PUSHES = """
with strategy.scope():
    center = tf.Variable([1.0, -2.0])
    slot = tf.Variable([0.0, 0.0], per_worker_variable=True)
    count = tf.Variable(0, per_worker_variable=True)
    momentum = ls.MomentumOptimizer(RATE, MOMENTUM, use_locking=True)

@tf.function
def train_round(gradients):
    weight, velocity = center.read_value(), slot.read_value()
    gathered = tf.zeros_like(weight)
    for gradient in tf.unstack(gradients):
        velocity = MOMENTUM * velocity + gradient
        weight = weight - RATE * velocity
        gathered = gathered + gradient
    slot.assign(velocity)
    count.assign_add(1)
    push(momentum, [(gathered / PERIOD, center)])
    return weight

turns, states = [], []
for gradients in json.loads(sys.argv[1]):
    before = count.read_all() if turns else [0, 0]
    local = coordinator.schedule(train_round, args=(tf.constant(gradients),))
    coordinator.join()
    turns.append(int(count.read_all()[1] - before[1]))
    states.append([local.fetch().tolist(), center.numpy().tolist()])
print(json.dumps([turns, states]))

with strategy.scope():
    rounds = tf.Variable(0)
    inner = ls.GradientDescentOptimizer(0.25, use_locking=True)
    rule = ls.MultitaskOptimizerWrapper(inner)

@tf.function
def push_ones():
    push(rule, [(tf.ones([2]), center)], global_step=rounds)

start = center.numpy()
for k in range(200):
    coordinator.schedule(push_ones)
coordinator.join()
print(json.dumps([(start - center.numpy()).tolist(), int(rounds)]))
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


def rounds_on_reference(turns: list[int]) -> list[list[Any]]:
    """Return the weights of worker and center after each round on the reference."""
    workers: list[Any] = []
    for _ in range(2):
        shared = workers[0][2].custom_getter.center if workers else None
        weight = reference.Variable("w", np.float32([1.0, -2.0]))
        getter = reference.AGNCustomGetter("cpu", center=shared)
        getter([weight])
        rule = reference.MomentumOptimizer(RATE, MOMENTUM)
        optimizer = reference.AGNOptimizer(rule, 2, getter, PERIOD)
        workers.append((weight, getter, optimizer))
    states = []
    for turn, gradients in zip(turns, ROUNDS, strict=True):
        weight, getter, optimizer = workers[turn]
        # A closure begins with the shared weights as they are then.
        optimizer.get_init_op(turn)
        velocity, local = optimizer.get_slot(weight, "momentum"), weight.value
        velocity = np.zeros(2, np.float32) if velocity is None else velocity
        for gradient in np.float32(gradients):
            velocity = np.float32(MOMENTUM) * velocity + gradient
            local = local - np.float32(RATE) * velocity
            optimizer.apply_gradients([(gradient, weight)])
        states.append([local.tolist(), getter._global_map[weight].value.tolist()])
    return states


@pytest.mark.slow
def test_rounds_as_closures_are_the_references_and_the_wrapper_is_refused(
    child: Callable[..., str],
) -> None:
    constants = f"RATE, MOMENTUM, PERIOD = {RATE}, {MOMENTUM}, {PERIOD}\n"
    script = COORDINATOR + constants + ROUNDS_AND_PUSHES + REFUSED
    rounds, pushes, *refusals = child(script, json.dumps(ROUNDS)).splitlines()
    turns, states = json.loads(rounds)
    # A product and a sum may be one operation, which rounds once.
    np.testing.assert_allclose(states, rounds_on_reference(turns), rtol=0, atol=1e-6)
    # Of pushes that overlap none is lost.
    assert json.loads(pushes) == [[50.0, 50.0], 200]
    assert refusals == ["UnsupportedError"] * 3
