"""Row clipping."""

from __future__ import annotations

from lockstep import errors
from lockstep.tests.kit import EVERYWHERE, WHOLE_ONLY, Cells, Mistake, Wrap

__all__ = ["MISTAKES", "PARALLEL", "SIGNATURES", "WRAPPERS"]

SIGNATURES = {
    "VariableClippingOptimizer": "opt, vars_to_clip_dims, max_norm, use_locking=False, "
    "colocate_clip_ops_with_vars=False, name='VariableClipping'",
}

WRAPPERS: dict[str, Wrap] = {
    "row clip": lambda k, w: k.ls.VariableClippingOptimizer(k.base(w), {}, 1.0),
}

MISTAKES: dict[str, Mistake] = {
    "no optimizer for row clipping": (
        lambda k: k.ls.VariableClippingOptimizer(3, {}, 1.0),
        errors.NotAnOptimizerError,
        "ptimizer, got int; pass the optimizer whose steps come first",
    ),
    "axes of no variables": (
        lambda k: k.ls.VariableClippingOptimizer(k.base(k.variable()), 3, 1.0),
        errors.AxesError,
        "vars_to_clip_dims: expected",
    ),
    "a row norm of 0": (
        lambda k: k.ls.VariableClippingOptimizer(k.base(k.variable()), {}, 0.0),
        errors.OutOfRangeError,
        "max_norm: expected",
    ),
}

PARALLEL: dict[str, Cells] = {
    "`VariableClippingOptimizer`, rows whole": EVERYWHERE,
    "`VariableClippingOptimizer`, rows split": WHOLE_ONLY,
}
