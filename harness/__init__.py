"""The harness: replays recorded cases, runs experiments, draws plots, writes pages.

It is not part of the wheel and works on the sources beside it: ``impls`` is put on the
path, so that ``python -m harness`` needs nothing but a checkout. Importing it imports
no framework: what needs one runs in a child process of its own.
"""

import sys
from pathlib import Path

SOURCES = str(Path(__file__).resolve().parent.parent / "impls")

if SOURCES not in sys.path:
    sys.path.insert(0, SOURCES)
