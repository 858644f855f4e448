"""AGN's workers are saved and go on: checkpoints and savers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from lockstep.tf import AdamOptimizer, AGNCustomGetter, AGNOptimizer
from lockstep.tf.tests.workers.worker_pairs import bits, single, team_of

v1 = tf.compat.v1


@pytest.mark.parametrize("stop", [1, 2, 5])
def test_a_checkpoint_of_several_workers_goes_on_to_the_bit(
    tmp_path: Path, stop: int
) -> None:
    def make() -> tuple[list[Any], list[AGNOptimizer], Any, tf.train.Checkpoint]:
        variables, team = team_of(2)
        counter = tf.Variable(0, dtype=tf.int64)
        made = tf.train.Checkpoint(variables=variables, team=team, counter=counter)
        return variables, team, counter, made

    def go(variables: Any, team: Any, counter: Any, turns: range) -> None:
        for k in turns:
            # The second worker pushes first: slots belong to no worker.
            number = 1 - k // 2 % 2
            pairs = [(tf.constant([0.5 - k, 0.25 * k]), variables[number])]
            team[number].apply_gradients(pairs, global_step=counter)

    variables, team, counter, checkpoint = make()
    go(variables, team, counter, range(stop))
    path = checkpoint.write(str(tmp_path / "stopped"))
    go(variables, team, counter, range(stop, 9))
    others, again, other_counter, restored = make()
    restored.read(path).assert_existing_objects_matched()
    go(others, again, other_counter, range(stop, 9))
    whole = [v for worker in team for v in worker.variables()]
    resumed = [v for worker in again for v in worker.variables()]
    assert bits([*variables, *whole]) == bits([*others, *resumed])
    # Powers, own slots, accumulator, local step, shared weights and their slots.
    assert len(whole) == 2 * (2 + 2 + 1 + 1 + 1 + 2)


def test_shared_slots_are_restored_before_there_is_a_worker(tmp_path: Path) -> None:
    variable, worker = single()
    getter = worker.custom_getter
    for _ in range(2):
        worker.apply_gradients([(tf.constant([0.5, -1.0]), variable)])
    path = tf.train.Checkpoint(getter=getter).write(str(tmp_path / "saved"))
    own = tf.Variable([0.0, 0.0], name="w")
    restored = AGNCustomGetter("/cpu:0")
    restored([own])
    tf.train.Checkpoint(getter=restored).read(path)
    found = restored.center.slot(restored.center.shared["w"], "m")
    kept = getter.center.slot(getter.center.shared["w"], "m")
    assert bits([found]) == bits([kept]) != bits([tf.zeros(2)])


def test_a_saver_of_variables_goes_on_to_the_bit(tmp_path: Path) -> None:
    def train(first: int, last: int, save: int | None = None) -> list[bytes]:
        with tf.Graph().as_default(), v1.Session() as session:
            getter = AGNCustomGetter("/cpu:0")
            with v1.variable_scope("", custom_getter=getter):
                w = v1.get_variable("w", initializer=tf.constant([1.0, -2.0]))
            x = v1.placeholder(tf.float32, [2])
            step = v1.train.get_or_create_global_step()
            worker = AGNOptimizer(AdamOptimizer(0.1), 1, getter, 3)
            op = worker.apply_gradients([(x, w)], global_step=step)
            state = [w, step, *worker.variables()]
            saver = v1.train.Saver(state)
            session.run(v1.global_variables_initializer())
            session.run(v1.local_variables_initializer())
            if first:
                saver.restore(session, str(tmp_path / "saved"))
            for k in range(first, last):
                session.run(op, {x: [0.5 - k, 0.25 * k]})
                if k == save:
                    saver.save(session, str(tmp_path / "saved"))
            return [value.tobytes() for value in session.run(state)]

    whole = train(0, 8, save=3)
    assert train(4, 8) == whole
