"""Types of settings, which pydantic checks when an experiment declares them."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import ConfigDict, Field, StrictFloat, StrictInt
from pydantic.dataclasses import dataclass

Count = Annotated[StrictInt, Field(gt=0)]
Number = StrictInt | StrictFloat
"""An integer stays one: it is part of a run's id."""
Positive = Annotated[Number, Field(gt=0, lt=math.inf)]

settings = dataclass(frozen=True, config=ConfigDict(extra="forbid"))
"""Decorator of a task's ``Settings``."""
