"""What each backend calls the things that errors of several backends name."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KERAS3", "PYTORCH", "REFERENCE", "TF", "Nouns"]


@dataclass(frozen=True)
class Nouns:
    """The nouns of one backend, which sentences hold as ``{nouns.optimizer}``.

    Attributes:
        optimizer: the class of what can be wrapped, without its article.
        variable: what a pair has beside the gradient.
        kind: the same in prose.
        keys: what may be a key of ``vars_to_clip_dims``.
        use_keys: the remedy where a key is something else.
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
