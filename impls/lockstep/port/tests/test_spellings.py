"""Old spellings of a program: what each becomes, and what is left to the reader."""

from __future__ import annotations

import ast
import textwrap

import pytest

pytest.importorskip("libcst", reason="libcst is not installed")

from lockstep import registry
from lockstep.port.names import HINTS, MODULES, NAMES, hint, new_name
from lockstep.port.rewrite import port

V1 = "import tensorflow.compat.v1 as tf\n\ntf.disable_v2_behavior()\n"
STRICT = "from lockstep.tf import strict\n"


def ported(text: str) -> str:
    """Return a program after the port, and check that a second port keeps it."""
    once = port(textwrap.dedent(text).encode()).output
    again = port(once)
    assert (again.output, again.changes) == (once, ())
    ast.parse(once)
    return once.decode()


def left(text: str) -> dict[str, int]:
    """Return the names that are left to the reader, and in how many places."""
    found = port(textwrap.dedent(text).encode()).leftovers
    return {one.name: one.places for one in found}


STATEMENTS = {
    "import tensorflow as tf": V1.rstrip(),
    "import tensorflow": V1.replace("tf", "tensorflow").rstrip(),
    "from tensorflow.contrib.opt import AGNOptimizer, AGNCustomGetter": (
        "from lockstep.tf.strict import AGNOptimizer, AGNCustomGetter"
    ),
    "from tensorflow.contrib.opt import AdamWOptimizer as A": (
        "from lockstep.tf.strict import AdamWOptimizer as A"
    ),
    "from tensorflow.contrib import opt": "from lockstep.tf import strict as opt",
    "import tensorflow.contrib.opt as o": "from lockstep.tf import strict as o",
    "from tensorflow.contrib.opt.python.training.agn_optimizer import AGNOptimizer": (
        "from lockstep.tf.strict import AGNOptimizer"
    ),
    "from tensorflow.contrib.opt.python.training import agn_optimizer": (
        "from lockstep.tf import strict as agn_optimizer"
    ),
    "from tensorflow.python.training.adam import AdamOptimizer": (
        "from lockstep.tf.strict import AdamOptimizer"
    ),
    "from tensorflow.python.training import momentum": (
        "from lockstep.tf import strict as momentum"
    ),
    "from tensorflow.train.experimental import FixedLossScale": (
        "from lockstep.tf.strict import FixedLossScale"
    ),
    "from tensorflow.compat.v1.train.experimental import LossScale": (
        "from lockstep.tf.strict import LossScale"
    ),
    "from tensorflow.train import AdamOptimizer, Saver": (
        "from tensorflow.compat.v1.train import AdamOptimizer, Saver"
    ),
    "import tensorflow.losses as losses": (
        "import tensorflow.compat.v1.losses as losses"
    ),
    "from open_seq2seq.optimizers import optimize_loss": (
        "from lockstep.tf.strict import optimize_loss"
    ),
    "from open_seq2seq.optimizers import lr_policies": (
        "from lockstep.tf.strict import lr_policies"
    ),
    "from open_seq2seq.optimizers.lr_policies import poly_decay": (
        "from lockstep.tf.strict.lr_policies import poly_decay"
    ),
    "import open_seq2seq.optimizers.lr_policies as lr": (
        "from lockstep.tf.strict import lr_policies as lr"
    ),
    "from open_seq2seq.optimizers.optimizers import _clip_gradients_by_norm": (
        "from lockstep.tf.strict import _clip_gradients_by_norm"
    ),
    "from tensorflow.contrib.opt import NadamOptimizer, AGNOptimizer": (
        "from tensorflow.contrib.opt import NadamOptimizer\n"
        "from lockstep.tf.strict import AGNOptimizer"
    ),
}


@pytest.mark.parametrize("before", STATEMENTS)
def test_an_import_statement_is_ported(before: str) -> None:
    assert ported(f"{before}  # kept\n").replace("  # kept", "") == (
        f"{STATEMENTS[before]}\n"
    )


EXPRESSIONS = {
    "tf.contrib.opt.AdamWOptimizer(0.1)": "strict.AdamWOptimizer(0.1)",
    "tf.train.experimental.DynamicLossScale.from_config({})": (
        "strict.DynamicLossScale.from_config({})"
    ),
    "tf.compat.v1.train.experimental.FixedLossScale(8)": "strict.FixedLossScale(8)",
    "tf.mixed_precision.FixedLossScale(8)": "strict.FixedLossScale(8)",
    "(tf.contrib\n    .opt.AGNOptimizer)": "(strict.AGNOptimizer)",
}


@pytest.mark.parametrize("before", EXPRESSIONS)
def test_a_full_name_is_ported_and_strict_is_imported(before: str) -> None:
    program = f"import tensorflow as tf\nimport os\n\nx = {before}  # kept\n"
    expected = f"{V1}{STRICT}import os\n\nx = {EXPRESSIONS[before]}  # kept\n"
    assert ported(program) == expected


def test_optimizers_of_tensorflow_itself_stay() -> None:
    line = "base = tf.train.AdamOptimizer(0.1)\n"
    assert ported(f"import tensorflow as tf\n{line}") == f"{V1}{line}"


def test_an_assigned_module_becomes_an_import() -> None:
    program = """\
        import tensorflow as tf
        experimental = tf.train.experimental
        scale = experimental.FixedLossScale(8)
        """
    assert ported(program) == (
        f"{V1}from lockstep.tf import strict as experimental\n"
        "scale = experimental.FixedLossScale(8)\n"
    )


def test_a_module_of_which_names_are_missing_stays_and_others_are_ported() -> None:
    program = """\
        import tensorflow as tf
        experimental = tf.train.experimental
        x = experimental.FixedLossScale, experimental.PythonState
        """
    assert ported(program) == (
        f"{V1}{STRICT}experimental = tf.train.experimental\n"
        "x = strict.FixedLossScale, experimental.PythonState\n"
    )


def test_a_local_name_that_looks_the_same_stays() -> None:
    program = "def f(tf):\n    return tf.contrib.opt.AdamWOptimizer\n# tensorflow\n"
    assert ported(program) == program


def test_the_name_strict_is_avoided_where_the_program_has_it() -> None:
    text = ported("import tensorflow as tf\nstrict = tf.contrib.opt.AGNOptimizer\n")
    assert "from lockstep.tf import strict as lockstep_strict\n" in text
    assert "strict = lockstep_strict.AGNOptimizer\n" in text


def test_imports_in_blocks_keep_their_indentation() -> None:
    program = """\
        try:
            import tensorflow as tf  # one
        except ImportError: import tensorflow as tf; import os
        def f():
            return tf.contrib.opt.AGNOptimizer
        """
    assert ported(program) == textwrap.dedent("""\
        from lockstep.tf import strict
        try:
            import tensorflow.compat.v1 as tf  # one
            tf.disable_v2_behavior()
        except ImportError: import tensorflow.compat.v1 as tf; import os
        def f():
            return strict.AGNOptimizer
        """)


def test_the_call_follows_the_import_where_statements_share_a_line() -> None:
    assert ported("import tensorflow as tf; x = tf.ones([])\n") == (
        "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior(); x = tf.ones([])\n"
    )


def test_comments_between_names_are_kept() -> None:
    program = """\
        from tensorflow.contrib.opt import (
            AGNOptimizer,  # one
            NadamOptimizer,  # two
        )
        """
    assert all(note in ported(program) for note in ("# one", "# two"))
    one_module = program.replace("Nadam", "AdamW")
    expected = textwrap.dedent(one_module).replace(
        "tensorflow.contrib.opt", "lockstep.tf.strict"
    )
    assert ported(one_module) == expected


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_added_lines_end_as_the_others_do(newline: str) -> None:
    program = "import tensorflow as tf\nx = tf.contrib.opt.AGNOptimizer\n"
    expected = f"{V1}{STRICT}x = strict.AGNOptimizer\n"
    assert ported(program.replace("\n", newline)) == expected.replace("\n", newline)


LEFT = {
    "from tensorflow.contrib.opt import *": "from tensorflow.contrib.opt import *",
    "from tensorflow import *": "from tensorflow import *",
    "from tensorflow.contrib.opt import NadamOptimizer": (
        "tf.contrib.opt.NadamOptimizer"
    ),
    "from tensorflow.contrib.opt import ShampooOptimizer": (
        "tf.contrib.opt.ShampooOptimizer"
    ),
    "import tensorflow.contrib.slim as slim": "tf.contrib.slim",
    "from tensorflow.keras.layers import Dense": "tf.keras",
    "from tensorflow.python.ops import math_ops": "tensorflow.python",
    "from open_seq2seq.models import Speech2Text": "open_seq2seq",
    "from tensorflow.train import Saver": "disable_v2_behavior",
    "import tensorflow as tf; f(tf.contrib.opt)": "tf.contrib.opt",
    "import tensorflow as tf; tf.layers.dense(x, 3)": "tf.layers",
    "import tensorflow as tf; getattr(tf.contrib.opt, 'Lamb')": "tf.contrib.opt",
    "import tensorflow; x = 'tf.contrib.opt.AdamWOptimizer'": (
        '"tf.contrib.opt.AdamWOptimizer"'
    ),
}


@pytest.mark.parametrize("program", LEFT)
def test_what_lockstep_does_not_have_is_left_to_the_reader(program: str) -> None:
    assert LEFT[program] in left(program)


def test_names_below_one_hint_are_counted_together() -> None:
    program = """\
        import tensorflow as tf
        '''tf.contrib.opt in a docstring is prose.'''
        x = tf.contrib.slim.conv2d(tf.contrib.slim.flatten(1), tf.train.Saver())
        """
    assert left(program) == {"tf.contrib.slim": 2}


def test_every_name_is_there_in_strict() -> None:
    if not registry.installed("tf"):
        pytest.skip("tensorflow is not installed")
    module = registry.load("tf", strict=True)
    for new in set(MODULES.values()):
        below = new.removeprefix("lockstep.tf.strict").strip(".")
        target = getattr(module, below) if below else module
        assert not [name for name in NAMES[new] if not hasattr(target, name)]


@pytest.mark.parametrize("name", HINTS)
def test_a_hint_is_about_a_name_that_is_not_ported(name: str) -> None:
    assert new_name(name) is None
    assert hint(f"{name}.more") == hint(name) == (name, HINTS[name])
