"""The settings of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from harness.tasks.embeddings.settings import EmbeddingSettings
from harness.tasks.settings import require, require_number
from lockstep.errors import unknown_name

__all__ = ["GRAPHS", "Settings"]

GRAPHS = ("UMLS", "Kinships", "Nations")


@dataclass(frozen=True)
class Settings(EmbeddingSettings):
    """The settings of one run, in addition to those of all tasks with embeddings.

    Attributes:
        graph: ``name``, one of ``GRAPHS``, and ``margin``: for each limit, the margin
            between true and false links. Longer rows need a larger margin.
        start: the root mean square of the initial norms of the entities' rows.
        penalty: if ``limit`` is ``penalty``, the factor of the squares of the batch's
            entities in the loss.
    """

    LIMITS: ClassVar[tuple[str, ...]] = ("none", "clip", "normalise", "penalty")

    graph: Mapping[str, Any]
    start: float
    penalty: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("start", "penalty"):
            require_number(self, name)
            object.__setattr__(self, name, float(getattr(self, name)))
        table = isinstance(self.graph, Mapping) and set(self.graph) == {
            "name",
            "margin",
        }
        require(table, "graph", "a table with name and margin", self.graph)
        if self.name not in GRAPHS:
            raise unknown_name("graph.name", self.name, GRAPHS)
        margins = self.graph["margin"]
        each = isinstance(margins, Mapping) and set(margins) == set(self.LIMITS)
        require(each, "graph.margin", "a number for each limit", margins)
        require_number(SimpleNamespace(**margins), *margins)
        numbers = {name: float(margin) for name, margin in margins.items()}
        graph = {"name": self.name, "margin": numbers}
        object.__setattr__(self, "graph", graph)

    @property
    def name(self) -> str:
        """The name of the graph."""
        return str(self.graph["name"])

    @property
    def margin(self) -> float:
        """The margin between true and false links."""
        margin: float = self.graph["margin"][self.limit]
        return margin
