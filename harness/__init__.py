"""The harness: replays recorded cases, runs experiments, draws plots, writes pages.

It is not part of the wheel. It runs from a checkout: ``impls`` is put on the path, so
``python -m harness`` needs no installation. Importing this package imports no
framework. Code that needs a framework runs in a child process.
"""

import sys
from pathlib import Path

SOURCES = str(Path(__file__).resolve().parent.parent / "impls")

if SOURCES not in sys.path:
    sys.path.insert(0, SOURCES)
