"""Until the last importer has moved: see :mod:`lockstep.pytorch.fused`."""

from lockstep.messages import pytorch as words
from lockstep.pytorch.fused import *  # noqa: F403
from lockstep.pytorch.fused import require_fused, step_dividing
from lockstep.pytorch.gradients import gradients_set_to


def step_each(
    optimizer,
    parameters,
    skip,
    grad_scale,
) -> None:
    """Call the step of a fused optimizer for each parameter by itself.

    Args:
        optimizer: the optimizer.
        parameters: its parameters that have a gradient.
        skip: [n] float32, 1 for each parameter that must not change, else 0.
        grad_scale: what the gradients are divided by; None for no division.
    """
    gradients = [parameter.grad for parameter in parameters]
    with gradients_set_to(parameters, [None] * len(gradients)):
        for parameter, gradient, own in zip(
            parameters, gradients, skip.unbind(), strict=True
        ):
            parameter.grad = gradient
            step_dividing(optimizer, optimizer.step, grad_scale, own)
            parameter.grad = None


def require_capturable(owner, optimizer, options):
    """Raise if an option needs a host sync in each step.

    ``options`` contains each such option and whether it is chosen.
    """
    require_fused(owner, optimizer)
    for option, is_chosen in options.items():
        if is_chosen:
            raise words.ASKS_EACH_STEP.error(owner=owner, option=option)
