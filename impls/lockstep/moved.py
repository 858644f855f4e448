"""Import modules by their names of release 0.2, which old code and pickles still use.

Pickles of whole optimizers name the module of each class. The old names work until the
next release, with a DeprecationWarning. ``lockstep.<backend>.lr_policies`` is public
and stays.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["MOVED", "install"]

CLASSES = {
    "clipping": ("variable_clipping",),
    "scaling": ("loss_scale", "loss_scale_optimizer"),
    "masters": ("mixed_precision", "regularizer"),
    "workers": ("agn", "center"),
    "step": ("training_step",),
}
"""Folder -> modules of every backend with classes that users may have pickled."""
OF_ONE = {
    "lockstep.pytorch.rule_optimizer": "lockstep.pytorch.optimizers.rule_optimizer",
    "lockstep.keras3.rule_optimizer": "lockstep.keras3.optimizers.rule_optimizer",
    "lockstep.tf.adamw": "lockstep.tf.optimizers.adamw",
    "lockstep.tf.ftrl": "lockstep.tf.optimizers.ftrl",
    "lockstep.tf.novograd": "lockstep.tf.optimizers.novograd",
    "lockstep.pytorch.automatic_scaler": "lockstep.pytorch.scaling.automatic_scaler",
    "lockstep.pytorch.lr_scheduler": "lockstep.pytorch.schedules.lr_scheduler",
    "lockstep.pytorch.summaries": "lockstep.pytorch.base.summaries",
    "lockstep.reference.automatic_scaler": (
        "lockstep.reference.scaling.automatic_scaler"
    ),
    "lockstep.tf.loss_scaler": "lockstep.tf.scaling.loss_scaler",
    "lockstep.keras3.loss_scaler": "lockstep.keras3.scaling.loss_scaler",
    "lockstep.keras3.lr_schedule": "lockstep.keras3.schedules.lr_schedule",
    "lockstep.spec": "lockstep.messages",
    "lockstep.spec.errors": "lockstep.messages.errors",
}
BACKENDS = ("reference", "tf", "keras3", "pytorch")
PUBLIC = {
    f"lockstep.{backend}.lr_policies": f"lockstep.{backend}.schedules.lr_policies"
    for backend in BACKENDS
}
MOVED = OF_ONE | {
    f"lockstep.{backend}.{module}": f"lockstep.{backend}.{folder}.{module}"
    for backend in BACKENDS
    for folder, modules in CLASSES.items()
    for module in modules
}
"""Old name of a module -> its name now."""


class MovedModule(Loader):
    """Load an old module name by importing the new module."""

    def __init__(self, target: str) -> None:
        self.target = target

    def exec_module(self, module: ModuleType) -> None:
        """Replace the empty module under the old name by the new module."""
        sys.modules[module.__name__] = importlib.import_module(self.target)


class MovedFinder(MetaPathFinder):
    """Find modules by their old names."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return how to load ``fullname`` if it is an old name."""
        if fullname in PUBLIC:
            return ModuleSpec(fullname, MovedModule(PUBLIC[fullname]))
        if fullname not in MOVED:
            return None
        new = MOVED[fullname]
        warnings.warn(
            f"{fullname} is now {new}; the old name goes with the next release.",
            DeprecationWarning,
            stacklevel=2,
        )
        return ModuleSpec(fullname, MovedModule(new))


def install() -> None:
    """Make ``import`` find the old names."""
    if not any(isinstance(finder, MovedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, MovedFinder())
