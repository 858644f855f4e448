"""Each backend's terms for the messages that several backends share."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KERAS3", "PYTORCH", "REFERENCE", "TF", "Nouns"]


@dataclass(frozen=True)
class Nouns:
    """The nouns of one backend, used in messages as ``{nouns.optimizer}``.

    Attributes:
        optimizer: the class of optimizers that can be wrapped, without an article.
        variable: the second entry of a pair, after the gradient.
        kind: the same in prose.
        keys: the valid keys of ``vars_to_clip_dims``.
        use_keys: the remedy for an invalid key.
    """

    optimizer: str
    variable: str
    keys: str
    kind: str = "variable"
    use_keys: str = "use the variables themselves as keys"


REFERENCE = Nouns("lockstep.reference optimizer", "Variable", "reference Variables")
TF = Nouns("tf.compat.v1.train.Optimizer", "tf.Variable", "variables, or their ref(),")
KERAS3 = Nouns(
    "keras.optimizers.Optimizer",
    "keras.Variable",
    "paths or references of variables",
    use_keys="use variable.path, or variable.value.ref()",
)
PYTORCH = Nouns(
    "torch.optim.Optimizer",
    "parameter",
    "parameters or their names",
    kind="parameter",
)
