"""The errors of gradient pairs, losses, lists of variables, and saved states."""

from __future__ import annotations

from lockstep.errors import (
    DtypeError,
    LossNotCallableError,
    MalformedPairsError,
    NoGradientsError,
    NotAnOptimizerError,
    NotScalableError,
    OutOfRangeError,
    Refusal,
    ShapeError,
    UnsupportedError,
    VarListError,
)

NOT_PAIRS = Refusal(
    MalformedPairsError,
    "{owner}: expected an iterable of (gradient, variable) pairs, got {got}; "
    "pass a list such as [(gradient, variable), ...].",
)
NO_PAIRS = Refusal(
    NoGradientsError,
    "{owner}: expected at least one (gradient, variable) pair, got an empty list; "
    "pass what compute_gradients returned.",
)
NOT_A_VARIABLE = Refusal(
    MalformedPairsError,
    "{owner}: expected pairs (gradient, {nouns.variable}), got {got}; "
    "put the gradient first and the {nouns.kind} second.",
)
NO_GRADIENTS = Refusal(
    NoGradientsError,
    "{owner}: expected a gradient for at least one variable, "
    "got None for every one of {got}; check that the loss depends on these variables.",
)
OTHER_DTYPE = Refusal(
    DtypeError,
    "{owner}: expected a gradient of dtype {expected} for {name!r}, got {got}; "
    "cast the gradient to the variable's dtype.",
)
OTHER_SHAPE = Refusal(
    ShapeError,
    "{owner}: expected a gradient of shape {expected} for {name!r}, got {got}; "
    "pass the gradient of this variable.",
)
INDEX_MISSING = Refusal(
    ShapeError,
    "{owner}: expected an index for each of {rows} rows of the gradient of {name!r}, "
    "got {got}; let indices be as long as values.",
)
INDEX_OUT_OF_RANGE = Refusal(
    OutOfRangeError,
    "{owner}: expected indices of the {count} rows of {name!r}, got {got}; "
    "count them from 0.",
)
INTEGER_GRADIENTS = Refusal(
    DtypeError,
    "{owner}: expected floating-point gradients, got {got}; cast them first.",
)
COMPLEX_GRADIENTS = Refusal(
    DtypeError,
    "{owner}: expected real gradients, got {got}; "
    "pass their real and imaginary parts as two.",
)
NOT_A_COUNTER = Refusal(
    DtypeError,
    "{owner}: expected global_step to be None or a 0-d integer variable, got {got}; "
    "make one with Variable('global_step', 0, np.int64).",
)
LOSS_WITH_ARGUMENTS = Refusal(
    LossNotCallableError,
    "{owner}: loss: expected a callable without arguments, got one with {signature}; "
    "write lambda: loss(batch).",
)
LOSS_NOT_CALLABLE = Refusal(
    LossNotCallableError,
    "{owner}: loss: expected a callable without arguments, got {got}; "
    "wrap it, as in compute_gradients(lambda: loss(w), [w]).",
)
NO_LOSS = Refusal(
    LossNotCallableError,
    "{owner}: loss: expected a 0-d tensor, got {got!r}; "
    "return the loss from its function.",
)
GRAD_LOSS_IS_TEXT = Refusal(
    DtypeError,
    "{owner}: grad_loss: expected a number or a tensor, got {got!r}; "
    "leave it out for 1.",
)
NOT_LISTED = Refusal(
    VarListError,
    "{owner}: var_list: expected a list of variables, got {got}; "
    "list those that are to be trained.",
)
NO_VAR_LIST = Refusal(
    VarListError,
    "{owner}: var_list: expected a list of variables, got None; "
    "NumPy finds none by itself: list them.",
)
OTHER_NUMBER_OF_GRADIENTS = Refusal(
    UnsupportedError,
    "{owner}: loss: expected {expected} gradients, one for each variable, got {got}; "
    "return them in the order of var_list, None where there is none.",
)
BAD_GATE = Refusal(
    OutOfRangeError,
    "{owner}: gate_gradients: expected GATE_NONE, GATE_OP or GATE_GRAPH, got {got!r}; "
    "leave it out for GATE_OP.",
)
BAD_AGGREGATION = Refusal(
    OutOfRangeError,
    "{owner}: aggregation_method: expected None, 0, 1 or 2, got {got!r}; "
    "leave it out for None.",
)
OTHER_GROUPS = Refusal(
    UnsupportedError,
    "{owner}: expected a state of groups with {expected} parameters, got {got}; "
    "load it before groups are added, or add the missing ones first.",
)
OTHER_RULE = Refusal(
    UnsupportedError,
    "{owner}: expected a state of {optimizer}, got one {got}; "
    "load it into the optimizer that was saved.",
)
NOT_AN_OPTIMIZER = Refusal(
    NotAnOptimizerError,
    "{owner}: expected a {nouns.optimizer}, got {got}; {remedy}.",
)
NOT_SCALABLE = Refusal(
    NotScalableError,
    "{owner}: expected a {nouns.optimizer}, got {got}; {remedy}.",
)
