"""Scripts and their outputs in hand-written pages, so that a page reads anywhere.

A comment names the file, and the fence below it has the file's text::

    <!-- examples/multitask_pytorch.py -->
    ```python
    ...
    ```
"""

from __future__ import annotations

import re
from pathlib import Path

from harness.processes.children import ROOT

DOCS = ROOT / "docs"
QUOTED = re.compile(
    r"^( *)<!-- (examples/\S+) -->\n *(```[^\n]*)\n.*?^ *```$", re.MULTILINE | re.DOTALL
)


def with_files(page: str, docs: Path = DOCS) -> str:
    """Return a page in which each such fence has the text of its file."""

    def fence(match: re.Match[str]) -> str:
        indent, path, opening = match.groups()
        text = (docs / path).read_text("utf-8").strip()
        lines = [f"<!-- {path} -->", opening, *text.splitlines(), "```"]
        return "\n".join(f"{indent}{line}" if line else "" for line in lines)

    return QUOTED.sub(fence, page)


def write_quoted(docs: Path = DOCS) -> list[Path]:
    """Write the pages whose files have changed; return them."""
    changed = []
    for path in sorted(docs.rglob("*.md")):
        page = path.read_text("utf-8")
        if "generated" not in path.parts and (new := with_files(page, docs)) != page:
            path.write_text(new, "utf-8", newline="\n")
            changed.append(path)
    return changed
