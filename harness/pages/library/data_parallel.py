"""Insert: what each tool of PyTorch does in data-parallel training."""

from __future__ import annotations

from lockstep.tests.tools import collected


def parallel_table() -> str:
    """Return what each tool of PyTorch does in each layout, as a table in Markdown."""
    head = ("Tool", "DDP", "FSDP2", "tensor parallel")
    rows = [(name, *cells) for name, cells in collected("PARALLEL").items()]
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
