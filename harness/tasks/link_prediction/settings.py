"""The settings of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from harness.tasks.embeddings.settings import EmbeddingSettings
from harness.tasks.settings import require, require_number
from lockstep.messages.errors import unknown_name

__all__ = ["GRAPHS", "Settings"]

GRAPHS = ("UMLS", "Kinships", "Nations")


@dataclass(frozen=True)
class Settings(EmbeddingSettings):
    """What one run does, beside what all tasks with embeddings have.

    Attributes:
        graph: ``name``, one of ``GRAPHS``, and ``margin``: for each limit, by how much
            a false link should be worse than a true one. With longer rows, a larger
            margin is as good.
        start: root mean square of the norms that the entities' rows begin with.
        penalty: where ``limit`` is ``penalty``, by how much the squares of the entities
            that a batch names add to its loss.
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
        """By how much a false link should be worse than a true one."""
        margin: float = self.graph["margin"][self.limit]
        return margin
