"""Attributes of what is wrapped, which are found on every wrapper."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lockstep import reference as ls

W = ls.Variable("w", np.ones((1, 2), np.float32))
WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "multitask": ls.MultitaskOptimizerWrapper,
    "row clipping": lambda base: ls.VariableClippingOptimizer(base, {W: [1]}, 1.0),
    "scale": lambda base: ls.MixedPrecisionLossScaleOptimizer(base, 8.0),
    "masters": lambda base: ls.MixedPrecisionOptimizerWrapper(base, 8.0),
    "AGN": lambda base: ls.AGNOptimizer(base, 1, ls.AGNCustomGetter("/cpu:0")),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_wrapper_has_the_attributes_of_what_it_wraps(wrap: Any) -> None:
    base = ls.MomentumOptimizer(0.1, 0.875)
    base.note = "ours"
    wrapper = wrap(base)
    assert wrapper.note == "ours"
    with pytest.raises(AttributeError, match="nothing"):
        _ = wrapper.nothing


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_wrapper_without_its_optimizer_says_so(wrap: Any) -> None:
    # copy and pickle make such an object, and ask it for its methods.
    wrapper = wrap(ls.MomentumOptimizer(0.1, 0.875))
    empty = type(wrapper).__new__(type(wrapper))
    with pytest.raises(AttributeError, match="inner_optimizer"):
        _ = empty.inner_optimizer
    assert copy.copy(wrapper).inner_optimizer is wrapper.inner_optimizer
