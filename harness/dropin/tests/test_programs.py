"""Old programs run against Lockstep and print what they printed on TensorFlow 1.15."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.dropin.declared import Program, find, programs
from harness.dropin.judging import compare, largest
from harness.dropin.moving import BEGIN, END, Line, imports, lines, move
from harness.dropin.running import LOCKSTEP, Interpreter, run
from harness.dropin.tests.together import printed_by
from harness.errors import HarnessError
from harness.tests.shared_processes import Processes

NAMES = sorted(programs())
EXCHANGED = sorted(name for name in NAMES if find(name).exchange)


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    """Let one wait for the soak whose like is in ``tf/tests/workers``."""
    return [pytest.mark.soak] * (name == "agn_cluster")


@pytest.mark.slow
@pytest.mark.backend("tf")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks_of(name)) for name in NAMES]
)
def test_a_moved_program_prints_what_the_original_printed(
    name: str, tmp_path: Path, processes: Processes
) -> None:
    program = find(name)
    parts = [
        printed_by(program, phase, tmp_path, processes) for phase in program.phases
    ]
    assert [len(part) for part in parts] == list(program.recorded.counts)
    apart = compare(program.recorded.lines, [line for part in parts for line in part])
    assert not [str(one) for one in apart if one.ulp > program.ulp]


@pytest.mark.slow
@pytest.mark.backend("tf")
@pytest.mark.parametrize("name", EXCHANGED)
def test_a_checkpoint_of_the_original_is_gone_on_from(
    name: str, tmp_path: Path, processes: Processes
) -> None:
    program = find(name)
    for path in program.checkpoints.iterdir():
        shutil.copy(path, tmp_path)
    second = program.phases[1]
    lines = printed_by(program, second, tmp_path, processes)
    recorded = program.of_phase(second, program.recorded.lines)
    assert recorded
    assert largest(compare(recorded, lines)) <= program.ulp


def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been() -> None:
    rows = [json.loads(line) for line in find("monitored").recorded.lines]
    steps = [row for row in rows if "k" in row]
    whole = {row["k"]: row for row in steps if row["phase"] == "whole"}
    second = [row for row in steps if row["phase"] == "second"]
    assert 0 < second[0]["k"] < max(r["k"] for r in steps if r["phase"] == "first")
    assert second[-1]["k"] == max(whole)
    assert all({**row, "phase": "whole"} == whole[row["k"]] for row in second)


@pytest.mark.parametrize("name", NAMES)
def test_only_import_lines_change(name: str) -> None:
    before, after = find(name).text, move(find(name).text)
    for cut in (BEGIN, END):
        assert before.count(cut) == after.count(cut) == 1
    assert before.split(BEGIN)[0] == after.split(BEGIN)[0]
    assert before.split(END)[1] == after.split(END)[1]
    assert "tensorflow.contrib" not in after
    assert "open_seq2seq" not in after.split(BEGIN)[1].split(END)[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_program_changes_at_least_the_import_of_tensorflow(name: str) -> None:
    assert imports(find(name).text)[0] == (
        "import tensorflow as tf",
        ["import tensorflow.compat.v1 as tf", "", "tf.disable_v2_behavior()"],
    )


OLD_LINES = (
    "from tensorflow.contrib.opt import MultitaskOptimizerWrapper",
    "from tensorflow.contrib.opt import clip_gradients_by_global_norm",
    "from tensorflow.contrib.opt import AGNOptimizer, AGNCustomGetter",
    "from tensorflow.contrib.opt import VariableClippingOptimizer as Clipping",
    "from tensorflow.contrib import opt",
    "experimental = tf.train.experimental",
    "from open_seq2seq.optimizers import optimize_loss, get_regularization_loss",
    "from open_seq2seq.optimizers import lr_policies",
    "from open_seq2seq.optimizers.optimizers import optimize_loss, reduce_gradients",
    "from open_seq2seq.optimizers.optimizers import post_process_gradients",
    "from open_seq2seq.optimizers.optimizers import OPTIMIZER_CLS_NAMES",
    "from open_seq2seq.optimizers.optimizers import OPTIMIZER_SUMMARIES",
    "from open_seq2seq.optimizers.optimizers import _clip_gradients_by_norm",
    "from open_seq2seq.optimizers.optimizers import get_regularization_loss",
    "from open_seq2seq.optimizers.novograd import NovoGrad",
    "from open_seq2seq.optimizers.automatic_loss_scaler import AutomaticLossScaler",
    "from open_seq2seq.optimizers.mp_wrapper import MixedPrecisionOptimizerWrapper",
    "from open_seq2seq.optimizers.mp_wrapper import mp_regularizer_wrapper",
    "from open_seq2seq.optimizers.lr_policies import fixed_lr, piecewise_constant",
    "from open_seq2seq.optimizers.lr_policies import exp_decay, poly_decay",
    "from open_seq2seq.optimizers.lr_policies import cosine_decay, inv_poly_decay",
    "from open_seq2seq.optimizers.lr_policies import transformer_policy",
)


@pytest.mark.backend("tf")
@pytest.mark.parametrize("line", OLD_LINES)
def test_what_an_old_line_imports_is_there_once_it_is_moved(line: str) -> None:
    ((_, moved),) = imports(f"{BEGIN}\n{line}\n{END}")
    exec("\n".join(moved), {})


@pytest.mark.parametrize("entry", lines()[1:], ids=lambda entry: entry.original)
def test_every_entry_but_tensorflow_itself_is_tried(entry: Line) -> None:
    assert any(entry.change(line) for line in OLD_LINES)


def test_a_program_without_an_import_block_is_refused() -> None:
    with pytest.raises(HarnessError, match="import block"):
        move("import tensorflow as tf\n")


def test_a_program_that_ends_otherwise_than_declared_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{BEGIN}\n{END}\nraise SystemExit('stop here')\n"
    monkeypatch.setattr(Program, "text", property(lambda program: text))
    program = Program("stopping", "nothing")
    interpreter = Interpreter("here", LOCKSTEP.python, False, LOCKSTEP.variables)
    with pytest.raises(HarnessError, match="got 1: stop here"):
        run(program, interpreter, tmp_path)


def test_an_unknown_program_is_answered_with_the_known_ones() -> None:
    with pytest.raises(HarnessError, match="multitask_heads"):
        find("multitask_head")


@pytest.mark.parametrize(
    ("recorded", "got", "ulp"),
    [
        ({"a": 1.0}, {"a": 1.0}, None),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.000000238418579]}, 1.0),
        ({"a": [1e-8, 2.0]}, {"a": [2e-8, 2.0]}, 4.19e-2),
        ({"a": 0.0}, {"a": -0.0}, None),
        ({"a": float("nan")}, {"a": float("nan")}, None),
        ({"a": float("nan")}, {"a": 1.0}, float("inf")),
        ({"a": 3}, {"a": 4}, float("inf")),
        ({"a": 3}, {"a": 3.0}, float("inf")),
        ({"a": True}, {"a": 1}, float("inf")),
        ({"a": "x"}, {"a": "y"}, float("inf")),
        ({"a": "at 2.0"}, {"a": "at 2.000000238418579"}, 1.0),
        ({"a": "at 2.0"}, {"a": "by 2.0"}, float("inf")),
        ({"a": "at 2.0"}, {"a": "at 2.0 3.0"}, float("inf")),
        ({"a": 1.0}, {"b": 1.0}, float("inf")),
        ({"a": [1.0]}, {"a": [1.0, 1.0]}, float("inf")),
        ({"a": ["x", "y"]}, {"a": ["x"]}, float("inf")),
    ],
    ids=str,
)
def test_lines_are_equal_or_measured(
    recorded: object, got: object, ulp: float | None
) -> None:
    apart = compare([json.dumps(recorded)], [json.dumps(got)])
    assert bool(apart) == (ulp is not None)
    assert largest(apart) == pytest.approx(ulp or 0.0, rel=1e-2)


def test_a_missing_line_is_infinitely_far() -> None:
    assert largest(compare(['{"a": 1}', '{"b": 1}'], ['{"a": 1}'])) == float("inf")
