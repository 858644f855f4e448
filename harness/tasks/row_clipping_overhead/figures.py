"""The figure, which is the same for every benchmark."""

from harness.bench.figures import drawings

__all__ = ["drawings"]
