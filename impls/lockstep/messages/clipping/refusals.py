"""The errors of gradient and row clipping, and of LARC."""

from __future__ import annotations

from lockstep.errors import (
    AxesError,
    ClipAndLarcError,
    DtypeError,
    MalformedPairsError,
    NotASequenceError,
    OutOfRangeError,
    Refusal,
    UnknownNameError,
    UnsupportedError,
)

PARAMS_NOT_A_DICT = Refusal(
    OutOfRangeError,
    "LARC: larc_params: expected a dict of parameters, got {got!r}; "
    "write {{'larc_eta': 0.001}}.",
)
MISSING_ETA = Refusal(
    OutOfRangeError,
    "LARC: larc_params: expected an entry 'larc_eta', got {got}; "
    "give the ratio of update to weight, such as 0.001.",
)
PARAMETER_NOT_A_FLOAT = Refusal(
    OutOfRangeError,
    "LARC: {name}: expected a float, got {got!r}; {remedy}.",
)
# quirks.clip_absent
ABSENT_GRADIENT = Refusal(
    UnsupportedError,
    "{owner}: expected a gradient for {name!r}, got None; "
    "the original cannot leave it out; leave strict off.",
)
RATE_DTYPE = Refusal(
    DtypeError,
    "LARC: expected lr to be a number or a float32 tensor, got {got}; "
    "cast it, or leave strict off.",
)
BAD_RATE = Refusal(
    OutOfRangeError,
    "LARC: lr: expected {expected}, got {got}; pass the learning rate of this step.",
)
CLIP_AND_LARC = Refusal(
    ClipAndLarcError,
    "optimize_loss: expected clip_gradients or larc_params, got both; "
    "leave one of them out.",
)
NOT_A_SEQUENCE = Refusal(
    NotASequenceError,
    "clip_by_global_norm: t_list: expected a sequence of tensors, got {got:a}; "
    "put the tensors into a list.",
)
NEGATIVE_NORM = Refusal(
    OutOfRangeError,
    "clip_by_global_norm: use_norm: expected a number >= 0, got {got!r}; "
    "pass the norm of all tensors, or leave it out.",
)
BAD_NORM = Refusal(
    MalformedPairsError,
    "clip_by_global_norm: use_norm: expected a number or a 0-d tensor, got {got}; "
    "pass the norm of all tensors, or leave it out.",
)
NOT_A_TENSOR = Refusal(
    MalformedPairsError,
    "clip_by_global_norm: t_list: expected a tensor or None at position {position}, "
    "got {got}; convert it to a tensor first.",
)
NORM_DTYPE = Refusal(
    DtypeError,
    "VariableClippingOptimizer: max_norm: expected a number, or a tensor of {wanted}, "
    "got {got}; cast it to the dtype of the variable.",
)
OTHER_KEYS = Refusal(
    UnknownNameError,
    "VariableClippingOptimizer: max_norm: expected one norm for each key of "
    "vars_to_clip_dims, got {got} for {name!r}; give both mappings the same keys.",
)
MAPPING_UNDER_STRICT = Refusal(
    DtypeError,
    "VariableClippingOptimizer: max_norm: expected one norm for all, as in the "
    "original, got a mapping; leave strict off.",
)
EMPTY_NAME = Refusal(
    OutOfRangeError,
    "VariableClippingOptimizer: name: expected a name, got {got!r}; "
    "leave it out, or give one.",
)
AXES_NOT_IN_A_DICT = Refusal(
    AxesError,
    "VariableClippingOptimizer: vars_to_clip_dims: expected a dict "
    "{{variable: axes}}, got {got}; "
    "for one matrix w whose rows are to be clipped give {{w: [1]}}.",
)
AXES_NOT_LISTED = Refusal(
    AxesError,
    "VariableClippingOptimizer: vars_to_clip_dims: expected a list of axes for "
    "{name!r}, got {got!r}; give [1] for the rows of a matrix.",
)
REPEATED_AXIS = Refusal(
    OutOfRangeError,
    "VariableClippingOptimizer: vars_to_clip_dims: expected each axis of {name!r} "
    "once, got {got}; leave one of them out.",
)
AXIS_OUT_OF_RANGE = Refusal(
    OutOfRangeError,
    "VariableClippingOptimizer: vars_to_clip_dims: expected axes of {name!r}, which "
    "has {rank}, got {got}; axes count from 0, or from -1 at the end.",
)
NOT_A_KEY = Refusal(
    AxesError,
    "VariableClippingOptimizer: vars_to_clip_dims: expected {nouns.keys} as keys, "
    "got {got}; {nouns.use_keys}.",
)
LISTED_TWICE = Refusal(
    UnsupportedError,
    "VariableClippingOptimizer: vars_to_clip_dims: expected each variable once, "
    "got {name!r} twice; leave one of the two out.",
)
