"""Workers and a parameter server as old code sets them up: servers of one process.

They are in a child process, for what it does to TensorFlow lasts. Servers that run in
processes of their own are in ``test_agn_processes.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

import pytest

from lockstep.tf.tests.workers.turns import EVENTS, replayed

CLUSTER = """
import socket, threading
if sys.argv[1] == "v1":
    v1.disable_v2_behavior()
else:
    v1.disable_eager_execution()
from lockstep.tf{module} import AGNCustomGetter, AGNOptimizer
v1.logging.set_verbosity(v1.logging.ERROR)

def addresses(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = ["127.0.0.1:%d" % one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found

def start(workers):
    jobs = dict(ps=addresses(1), worker=addresses(workers))
    cluster = tf.train.ClusterSpec(jobs)
    tasks = [("ps", 0)] + [("worker", task) for task in range(workers)]
    return cluster, [
        tf.distribute.Server(cluster, job_name=job, task_index=task)
        for job, task in tasks
    ]

class Worker:
    def __init__(self, cluster, server, task, rule, folder=None):
        device = "/job:worker/task:%d" % task
        place = v1.train.replica_device_setter(cluster=cluster, worker_device=device)
        with tf.Graph().as_default() as self.graph, v1.device(place):
            getter = AGNCustomGetter(device)
            with v1.variable_scope("net", custom_getter=getter, use_resource=True):
                self.w = v1.get_variable("w", initializer=tf.constant([1.0, -2.0]))
            self.x = v1.placeholder(tf.float32, [2])
            self.step = v1.train.get_or_create_global_step()
            # The original puts its count where the device around says.
            with v1.device(device), v1.variable_scope("", use_resource=True):
                self.optimizer = AGNOptimizer(rule(), 2, getter, 2)
            loss = tf.reduce_sum(self.w * self.x)
            self.train = self.optimizer.minimize(loss, global_step=self.step)
            self.center = getter._global_map[self.w]
            self.accumulator = getter._grad_map[self.w]
            hook = self.optimizer.make_session_run_hook(task == 0, task)
            seen = ["/job:ps", device]  # Not to wait for workers that come later.
            self.session = v1.train.MonitoredTrainingSession(
                server.target,
                is_chief=task == 0,
                checkpoint_dir=folder,
                hooks=[hook],
                config=v1.ConfigProto(device_filters=seen),
                save_checkpoint_steps=None,
                save_checkpoint_secs=600 if folder else None,
                save_summaries_steps=None,
                log_step_count_steps=None,
            )

    def run(self, fetches, feeds=None):
        return self.session._tf_sess().run(fetches, feeds)

    def step_on(self, gradient):
        self.session.run(self.train, {{self.x: gradient}})
        return self.state()

    def state(self):
        own = [self.w, self.center, self.accumulator]
        found = self.run([*own, self.optimizer.local_step, self.step])
        return [value.tolist() for value in found]
"""

IN_TURN = """
cluster, servers = start(3)
rule = lambda: v1.train.MomentumOptimizer(0.25, 0.5)
team = [Worker(cluster, servers[1 + task], task, rule) for task in range(2)]
for number, gradient in {events}:
    print(number, team[number].step_on(gradient))
late = Worker(cluster, servers[3], 2, rule)
print("late", late.state())
"""

AT_ONCE = """
cluster, servers = start(2)
rule = lambda: v1.train.GradientDescentOptimizer(0.25, use_locking=True)
team = [Worker(cluster, servers[1 + task], task, rule) for task in range(2)]

def train(worker):
    for k in range(40):
        worker.step_on([1.0, 0.5])

threads = [threading.Thread(target=train, args=[worker]) for worker in team]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(team[0].state()[1], team[0].state()[4])
"""

SCRIPT = CLUSTER + IN_TURN.replace("{events}", repr(EVENTS)) + AT_ONCE


def test_turns_of_strict_are_the_reference_to_the_bit_and_threads_lose_nothing(
    child: Callable[..., str],
) -> None:
    assert_trained(child(SCRIPT.format(module=".strict"), "v1").splitlines())


def assert_trained(printed: Sequence[str]) -> None:
    """Compare what ``SCRIPT`` prints with the reference."""
    *lines, late, at_once = printed
    expected = replayed()
    told = [ast.literal_eval(line.partition(" ")[2]) for line in lines]
    assert told == expected
    # Who joins late begins with the shared weights as they are, and counts from 0.
    w, center, accumulator, local_step, global_step = ast.literal_eval(late[5:])
    assert w == center == expected[-1][1] != [1.0, -2.0]
    assert (accumulator, local_step, global_step) == ([0.0, 0.0], 0, expected[-1][4])
    # Nothing is lost of what threads push at once: 40 rounds, their means exact.
    assert at_once == "[-9.0, -7.0] 40"


RESTART = """
folder = sys.argv[2]

def begin():
    cluster, servers = start(1)
    rule = lambda: v1.train.AdamOptimizer(0.25)
    return servers, Worker(cluster, servers[1], 0, rule, folder)

for phase in range(2):
    # A parameter server that is new knows nothing of the one before.
    servers, worker = begin()
    print(worker.state())
    for gradient in ([0.5, 1.0], [0.25, -1.0], [2.0, 2.0]):
        worker.step_on(gradient)
    print(worker.state())
    worker.session.close()
    print(sorted(tf.train.load_checkpoint(folder).get_variable_to_shape_map()))
"""
LINES = 6
"""What ``RESTART`` prints."""


@pytest.fixture(scope="module")
def printed(
    child: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """The lines of both scripts in one process, with the default."""
    folder = tmp_path_factory.mktemp("restart")
    return child((SCRIPT + RESTART).format(module=""), "v2", folder).splitlines()


def test_turns_are_the_reference_to_the_bit_and_threads_lose_nothing(
    printed: list[str],
) -> None:
    assert_trained(printed[:-LINES])


def test_a_session_that_starts_again_begins_with_the_restored_shared_weights(
    printed: list[str],
) -> None:
    _, end, saved, again, after, _ = map(ast.literal_eval, printed[-LINES:])
    slots = [f"global_center_variable/net/w/{name}" for name in ("Adam", "Adam_1")]
    # As the original's: what is a worker's own is not in it.
    assert saved == ["global_center_variable/net/w", *slots, "global_step"]
    center, rounds = end[1], end[4]
    assert end[0] != center != [1.0, -2.0]
    assert again == [center, center, [0.0, 0.0], 0, rounds]
    assert after[4] == rounds + 1
