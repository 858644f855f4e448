"""Types of settings, which pydantic checks when an experiment declares them."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, StrictFloat, StrictInt
from pydantic.dataclasses import dataclass

from harness.tasks.settings import bound

Count = Annotated[StrictInt, Field(gt=0)]
Number = StrictInt | StrictFloat
"""An integer stays one: it is part of a run's id."""
Positive = Annotated[Number, Field(gt=0, lt=math.inf)]
Real = Annotated[float, Field(strict=True, gt=0, lt=math.inf)]
"""A number > 0; an integer becomes a float."""
Optimizer = Annotated[dict[str, Any], AfterValidator(bound)]
"""The name of an optimizer of TensorFlow 1 and all of its arguments."""

settings = dataclass(frozen=True, config=ConfigDict(extra="forbid"))
"""Decorator of a task's ``Settings``."""
