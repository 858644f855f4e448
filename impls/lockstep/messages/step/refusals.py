"""The errors of ``optimize_loss``, of reductions, summaries and regularization."""

from __future__ import annotations

from lockstep.errors import (
    AbsentAccumulatedError,
    DtypeError,
    LossNotCallableError,
    MalformedPairsError,
    MissingArgumentError,
    MissingDecayError,
    NotAnOptimizerError,
    NotASequenceError,
    NotReducedError,
    OutOfRangeError,
    RateFunctionError,
    Refusal,
    ShapeError,
    UnknownArgumentError,
    UnknownNameError,
    UnsupportedError,
    VarListError,
)

RATE_FUNCTION_ARGUMENTS = Refusal(
    RateFunctionError,
    "{owner}: {name}: expected a function from the steps to the rate, "
    "got {got}, which {which}; "
    "write lambda step: 0.1, or functools.partial(policy, ...).",
)
NO_RATE = Refusal(
    RateFunctionError,
    "{subject}: expected {expected}, got {got}; "
    "write lambda step: 0.1, or functools.partial(policy, ...).",
)
BAD_FLAG = Refusal(
    OutOfRangeError,
    "optimize_loss: {name}: expected a bool, a 0-d bool, or a function that returns "
    "one, got {got!r}; pass True to add only, and None to count the calls.",
)
NOT_A_DICT = Refusal(
    OutOfRangeError,
    "optimize_loss: {name}: expected a dict or None, got {got!r}; write {example}.",
)
NOT_A_MODEL = Refusal(
    OutOfRangeError,
    "optimize_loss: {name}: expected a model or None, got {got!r}; "
    "leave it out beside var_list.",
)
VARIABLES_NOT_LISTED = Refusal(
    VarListError,
    "optimize_loss: var_list: expected a list of variables, got {got:a}; {remedy}.",
)
NOT_A_VARIABLE = Refusal(
    VarListError,
    "optimize_loss: var_list: expected {expected}, got {got}; "
    "list the variables that this optimizer is to train.",
)
LISTED_TWICE = Refusal(
    VarListError,
    "optimize_loss: var_list: expected each variable once, got {got} twice; "
    "leave one of them out.",
)
UNTRAINABLE = Refusal(
    UnsupportedError,
    "optimize_loss: model: expected {expected}, got {got}; "
    "unfreeze some, or pass var_list.",
)
ANSWER_NOT_A_LIST = Refusal(
    NotASequenceError,
    "optimize_loss: loss: expected a list of {count} gradients, got {got:a}; "
    "return one for each variable of var_list.",
)
OTHER_NUMBER_OF_GRADIENTS = Refusal(
    UnsupportedError,
    "optimize_loss: loss: expected a list of {count} gradients, got {got}; "
    "return one for each variable of var_list.",
)
OTHER_SHAPE = Refusal(
    ShapeError,
    "optimize_loss: loss: expected a gradient of shape {expected} for {name!r}, "
    "got {got}; return the gradients in the order of var_list.",
)
UNKNOWN_DTYPE = Refusal(
    UnknownNameError,
    "optimize_loss: dtype: expected one of float32, float16, mixed, "
    "got {got!r}; {remedy}.",
)
NO_VARIABLES = Refusal(
    UnsupportedError,
    "optimize_loss: var_list: expected {expected}, got {got}; "
    "pass the variables that this optimizer is to train.",
)
WITHOUT_EFFECT = Refusal(
    UnsupportedError,
    "optimize_loss: loss_scaling: expected dtype='mixed' beside it, without which no "
    "loss is scaled, got {kind} with dtype {dtype!r}; "
    "pass dtype='mixed', or leave loss_scaling out.",
)
WITHOUT_SCALER = Refusal(
    UnsupportedError,
    "optimize_loss: loss_scaling_params: expected the name of a scaler as "
    "loss_scaling, which takes them, got {named} beside {kind}; "
    'pass loss_scaling="Backoff" or "LogMax", or leave them out.',
)
# quirks.optimize_loss_flag
NO_FLAG = Refusal(
    UnsupportedError,
    "optimize_loss: expected skip_update_ph with iter_size > 1, got None; "
    "give it, or leave strict off: the steps are counted then.",
)
BAD_ON_HOROVOD = Refusal(
    OutOfRangeError,
    "optimize_loss: on_horovod: expected a bool, got {got!r}; "
    "pass True to average over ranks.",
)
BAD_ITER_SIZE = Refusal(
    OutOfRangeError,
    "optimize_loss: iter_size: expected an int >= 1, got {got!r}; "
    "give the micro-batches in a step.",
)
NOT_AN_OPTIMIZER = Refusal(
    NotAnOptimizerError,
    "optimize_loss: optimizer: expected a {nouns.optimizer}, got {got:a}; "
    "pass a name of OPTIMIZER_CLS_NAMES, or a class.",
)
NO_RATE_ARGUMENT = Refusal(
    NotAnOptimizerError,
    "optimize_loss: optimizer: expected a class or a function that takes "
    "learning_rate= or lr=, got {got}; "
    "pass a function of the rate that makes the stack.",
)
NO_NAME = Refusal(
    UnknownNameError,
    "optimize_loss: optimizer: expected one of {names}, got {got!r}; "
    "pass the class lockstep.{backend}.{got}.",
)
UNKNOWN_ARGUMENT = Refusal(
    UnknownArgumentError,
    "optimize_loss: optimizer_params of {optimizer}: expected {expected}, "
    "got {got!r}; {remedy}.",
)
MISSING_ARGUMENT = Refusal(
    MissingArgumentError,
    "optimize_loss: optimizer_params of {optimizer}: expected {name!r}, got none; "
    "add {name!r}.",
)
MISSING_DECAY = Refusal(
    MissingDecayError,
    "optimize_loss: optimizer_params of AdamW: expected 'weight_decay', got none; "
    "add it, or take 'Adam'.",
)
INSTANCE = Refusal(
    NotAnOptimizerError,
    "optimize_loss: optimizer: expected the name of an optimizer, a class, or a "
    "function that makes one, got an instance of {got}{beside}; "
    "pass its class, and its arguments as optimizer_params.",
)
REDUCED_WITHOUT_RANKS = Refusal(
    OutOfRangeError,
    "reduce_gradients: on_horovod: expected True, got {got!r}; "
    "pass True where there are ranks.",
)
BAD_ENGINE = Refusal(
    OutOfRangeError,
    "{subject}: expected an engine with size, any, all_reduce, "
    "got {kind}, {lacks}; see Reduction.",
)
NOT_REDUCED = Refusal(
    NotReducedError,
    "reduce_gradients: expected on_horovod=True, got False; "
    "gradients of several towers in one process were never reduced; add them.",
)
OTHER_NUMBER_OF_MEANS = Refusal(
    UnsupportedError,
    "reduce_gradients: expected {expected} means from reduction.all_reduce, "
    "got {got}; return one mean for each tensor, in their order.",
)
LOSSES_NOT_LISTED = Refusal(
    MalformedPairsError,
    "get_regularization_loss: losses: expected a mapping or an iterable of losses, "
    "got {got}; pass {{name: loss}}, or a list such as [loss].",
)
LOSSES_WITHOUT_NAMES = Refusal(
    UnsupportedError,
    "get_regularization_loss: scope: expected losses with names, "
    "got losses without names; pass {{name: loss}}, or leave scope out.",
)
BAD_SCOPE = Refusal(
    OutOfRangeError,
    "get_regularization_loss: scope: expected a regular expression, got {got!r}; "
    "escape special characters with re.escape.",
)
NO_COLLECTION = Refusal(
    UnsupportedError,
    "get_regularization_loss: expected losses=, because only a TensorFlow graph "
    "collects them, got None; pass losses={{name: regularizer(weight)}}.",
)
NOT_SCALAR = Refusal(
    OutOfRangeError,
    "get_regularization_loss: losses: expected 0-d tensors, got {got}; sum it first.",
)
SUMMARIES_NOT_LISTED = Refusal(
    DtypeError,
    "{owner}: summaries: expected a list of names or None, got {got!r}; "
    "write ['global_gradient_norm'].",
)
BAD_RECORDER = Refusal(
    DtypeError,
    "{owner}: recorder: expected scalar(tag, value) and histogram(tag, values), or "
    "None, got {got:a}; {remedy}.",
)
BAD_RATE = Refusal(
    OutOfRangeError,
    "optimize_loss: learning_rate_decay_fn: expected a finite rate >= 0, got {got!r}; "
    "return a number, such as lr_policies.poly_decay(global_step, ...).",
)
LOSS_NOT_CALLABLE = Refusal(
    LossNotCallableError,
    "optimize_loss: loss: expected a function that computes the loss, got {got:a}; "
    "each step calls it: pass lambda: ..., or a function of a batch.",
)
EMPTY_ANSWER = Refusal(
    UnsupportedError,
    "optimize_loss: loss: expected a loss, or a tuple that begins with one, "
    "got an empty tuple; return the loss.",
)
# quirks.optimize_loss_accumulated
ABSENT_ACCUMULATED = Refusal(
    AbsentAccumulatedError,
    "optimize_loss: expected a gradient for {name!r} with iter_size > 1, got None; "
    "the original cannot leave it out; leave strict off.",
)
# quirks.optimize_loss_accumulated
SPARSE_ACCUMULATED = Refusal(
    UnsupportedError,
    "optimize_loss: expected a dense gradient for {name!r} with iter_size > 1, "
    "got a sparse one; the original cannot add it up; leave strict off.",
)
VARYING = Refusal(
    UnsupportedError,
    "optimize_loss: iter_size: expected the same gradients, dense or sparse, in each "
    "micro-batch, got another kind for {name!r} than before; "
    "fill in zeros where the loss does not depend on it.",
)
