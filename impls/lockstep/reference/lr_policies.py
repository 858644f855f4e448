"""The learning-rate policies of :mod:`lockstep.policies`, for numbers and arrays."""

from lockstep.policies import cosine_decay as cosine_decay
from lockstep.policies import exp_decay as exp_decay
from lockstep.policies import fixed_lr as fixed_lr
from lockstep.policies import inv_poly_decay as inv_poly_decay
from lockstep.policies import piecewise_constant as piecewise_constant
from lockstep.policies import poly_decay as poly_decay
from lockstep.policies import transformer_policy as transformer_policy
