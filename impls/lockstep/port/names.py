"""The new names of old names, and hints for names that Lockstep does not have."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.policies import POLICIES
from lockstep.registry import BACKENDS

STRICT = "lockstep.tf.strict"
POLICY_MODULE = f"{STRICT}.lr_policies"

NAMES: Mapping[str, frozenset[str]] = {
    STRICT: frozenset(BACKENDS["tf"].public_names(strict=True)),
    POLICY_MODULE: frozenset(POLICIES),
}
"""Module of Lockstep -> the names in it."""


MODULES: Mapping[str, str] = {
    **dict.fromkeys(
        [
            "tensorflow.contrib.opt",
            "tensorflow.train.experimental",
            "tensorflow.mixed_precision",
            "open_seq2seq.optimizers",
            "tensorflow.contrib.opt.python.training.agn_optimizer",
            "tensorflow.contrib.opt.python.training.multitask_optimizer_wrapper",
            "tensorflow.contrib.opt.python.training.variable_clipping_optimizer",
            "tensorflow.contrib.opt.python.training.weight_decay_optimizers",
            "tensorflow.python.training.adagrad",
            "tensorflow.python.training.adam",
            "tensorflow.python.training.ftrl",
            "tensorflow.python.training.gradient_descent",
            "tensorflow.python.training.momentum",
            "tensorflow.python.training.rmsprop",
            "tensorflow.python.training.experimental.loss_scale",
            "tensorflow.python.training.experimental.loss_scale_optimizer",
            "open_seq2seq.optimizers.automatic_loss_scaler",
            "open_seq2seq.optimizers.mp_wrapper",
            "open_seq2seq.optimizers.novograd",
            "open_seq2seq.optimizers.optimizers",
        ],
        STRICT,
    ),
    "open_seq2seq.optimizers.lr_policies": POLICY_MODULE,
}
"""Old module -> the Lockstep module that has its names."""

NOT_HERE = "Lockstep does not have it; TensorFlow 1.15 has its source"
PRIVATE = "a private module of TensorFlow; check that TensorFlow 2 still has it"
LEGACY = "Keras 3 does not have it; install tf_keras and set TF_USE_LEGACY_KERAS=1"

HINTS: Mapping[str, str] = {
    "tensorflow.contrib": "TensorFlow 2 does not have tf.contrib; replace it by hand",
    "tensorflow.contrib.crf": "TensorFlow Addons has it as tfa.text.crf_log_likelihood",
    "tensorflow.contrib.data": "look for the name in tf.data and tf.data.experimental",
    "tensorflow.contrib.distribute": "look for the name in tf.distribute",
    "tensorflow.contrib.framework": "tf_slim has most of it (pip install tf_slim)",
    "tensorflow.contrib.layers": "tf_slim.layers has most of it (pip install tf_slim)",
    "tensorflow.contrib.layers.optimize_loss": (
        "lockstep.tf.strict.optimize_loss is OpenSeq2Seq's and takes other arguments"
    ),
    "tensorflow.contrib.opt.AdaMaxOptimizer": "tf.keras.optimizers.Adamax is near it",
    "tensorflow.contrib.opt.MovingAverageOptimizer": (
        "tf.train.ExponentialMovingAverage does the averaging"
    ),
    "tensorflow.contrib.opt.NadamOptimizer": "tf.keras.optimizers.Nadam is near it",
    "tensorflow.contrib.opt.ScipyOptimizerInterface": "call scipy.optimize.minimize",
    "tensorflow.contrib.rnn": LEGACY.replace("it;", "tf.nn.rnn_cell;"),
    "tensorflow.contrib.seq2seq": "TensorFlow Addons has it as tfa.seq2seq",
    "tensorflow.contrib.slim": "pip install tf_slim and import tf_slim as slim",
    "tensorflow.contrib.summary": "look for the name in tf.summary",
    "tensorflow.estimator": "TensorFlow 2.16 removed it; write the training loop",
    "tensorflow.examples": "TensorFlow 2 does not have it; load the data yourself",
    "tensorflow.keras": (
        "TensorFlow 2.16 and later have Keras 3 here; for Keras 2 install tf_keras and "
        "set TF_USE_LEGACY_KERAS=1"
    ),
    "tensorflow.layers": LEGACY,
    "tensorflow.nn.rnn_cell": LEGACY,
    "tensorflow.python": PRIVATE,
    "open_seq2seq": "OpenSeq2Seq needs TensorFlow 1; copy the part that you need",
    "open_seq2seq.optimizers.automatic_loss_scaler.BackoffScaler": (
        "call AutomaticLossScaler('Backoff')"
    ),
    "open_seq2seq.optimizers.automatic_loss_scaler.LogMaxScaler": (
        "call AutomaticLossScaler('LogMax')"
    ),
}
"""Old name -> advice for it and for the names below it."""


def canonical(name: str) -> str:
    """Return a name without ``compat.v1``, which also exists from TensorFlow 1.13 on.

    Example:
        >>> canonical("tensorflow.compat.v1.train.AdamOptimizer")
        'tensorflow.train.AdamOptimizer'
    """
    v1 = "tensorflow.compat.v1"
    is_v1 = name == v1 or name.startswith(f"{v1}.")
    return f"tensorflow{name.removeprefix(v1)}" if is_v1 else name


def new_name(name: str) -> tuple[str, str] | None:
    """Return the Lockstep module that has an old name, and the name there.

    Example:
        >>> new_name("tensorflow.contrib.opt.AGNOptimizer")
        ('lockstep.tf.strict', 'AGNOptimizer')
        >>> new_name("tensorflow.contrib.opt.NadamOptimizer") is None
        True
    """
    module, _, last = canonical(name).rpartition(".")
    new = MODULES.get(module, "")
    return (new, last) if last in NAMES.get(new, ()) else None


def hint(name: str) -> tuple[str, str] | None:
    """Return the part of an old name that the user must port, and the advice.

    Example:
        >>> hint("tensorflow.contrib.slim.conv2d")
        ('tensorflow.contrib.slim', 'pip install tf_slim and import tf_slim as slim')
        >>> hint("tensorflow.train.AdamOptimizer") is None
        True
    """
    name = canonical(name)
    module, _, _ = name.rpartition(".")
    if module == "tensorflow.contrib.opt" and name not in HINTS:
        return name, NOT_HERE
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        prefix = ".".join(parts[:count])
        if prefix in HINTS:
            return prefix, HINTS[prefix]
    return None
