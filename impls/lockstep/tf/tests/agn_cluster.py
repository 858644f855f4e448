"""One task of a cluster of TensorFlow 1, as old code sets it up.

``agn_cluster.py JOB TASK CLUSTER FOLDER`` is a task in a process of its own: a
parameter server, or a worker that takes a step for each line it reads, a gradient, and
prints its state as JSON. CLUSTER is the addresses as JSON. The first worker saves to
FOLDER.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lockstep import tf as lockstep_tf

v1 = tf.compat.v1


def serve(cluster: tf.train.ClusterSpec, job: str, task: int) -> Any:
    """Start the server of this task."""
    return tf.distribute.Server(cluster, job_name=job, task_index=task)


class Worker:
    """A worker whose variables and checkpoint are as old code has them.

    ``period``: steps between two checkpoints of the first worker; None: only the last.
    """

    def __init__(
        self,
        cluster: tf.train.ClusterSpec,
        task: int,
        rule: Callable[[], Any],
        folder: str | None = None,
        period: int | None = None,
        names: Any = lockstep_tf,
    ) -> None:
        self.server = serve(cluster, "worker", task)
        device = f"/job:worker/task:{task}"
        place = v1.train.replica_device_setter(cluster=cluster, worker_device=device)
        with tf.Graph().as_default(), v1.device(place):
            getter = names.AGNCustomGetter(device)
            with v1.variable_scope("net", custom_getter=getter, use_resource=True):
                weight = v1.get_variable("w", initializer=tf.constant([1.0, -2.0]))
            self.gradient = v1.placeholder(tf.float32, [2])
            rounds = v1.train.get_or_create_global_step()
            # The original puts its count where the device around says.
            with v1.device(device), v1.variable_scope("", use_resource=True):
                optimizer = names.AGNOptimizer(rule(), 2, getter, 2)
            loss = tf.reduce_sum(weight * self.gradient)
            self.train = optimizer.minimize(loss, global_step=rounds)
            own = [weight, getter._global_map[weight], getter._grad_map[weight]]
            self.state = [*own, optimizer.local_step, rounds]
            # Without filters a session waits for all tasks of the cluster.
            seen = ["/job:ps", device]
            self.session = v1.train.MonitoredTrainingSession(
                self.server.target,
                is_chief=task == 0,
                checkpoint_dir=folder,
                hooks=[optimizer.make_session_run_hook(task == 0, task)],
                config=v1.ConfigProto(device_filters=seen),
                save_checkpoint_secs=600 if folder and period is None else None,
                save_checkpoint_steps=period,
                save_summaries_steps=None,
                log_step_count_steps=None,
            )

    def step(self, gradient: list[float]) -> list[Any]:
        """Take a step; return the state after it."""
        self.session.run(self.train, {self.gradient: gradient})
        return self.read()

    def read(self) -> list[Any]:
        """Return the state, read without the session's hooks, which would save."""
        found = self.session.run_step_fn(
            lambda step_context: step_context.session.run(self.state)
        )
        return [value.tolist() for value in found]


def main(job: str, task: str, addresses: str, folder: str) -> None:
    """Be a task of the cluster until the process is killed."""
    v1.disable_eager_execution()
    v1.logging.set_verbosity(v1.logging.INFO)
    cluster = tf.train.ClusterSpec(json.loads(addresses))
    if job == "ps":
        server = serve(cluster, job, int(task))
        print("ready", flush=True)
        server.join()
    worker = Worker(cluster, int(task), momentum, folder, period=3)
    print(json.dumps(worker.read()), flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.step(json.loads(line))), flush=True)


def momentum() -> Any:
    return v1.train.MomentumOptimizer(0.25, 0.5, use_locking=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
