"""The figure: the one of every benchmark."""

from harness.bench.figures import drawings

__all__ = ["drawings"]
