"""One rank of an example: ``torchrun example_rank.py SCRIPT``.

PyTorch keeps the groups of ranks in caches of its own after they are destroyed, and
with them the threads of gloo, which now and then abort a process whose Python is
ending (https://github.com/pytorch/pytorch/pull/179291). So a rank that has done its
work leaves without that end.
"""

import os
import runpy
import sys

__all__: list[str] = []

if __name__ == "__main__":
    runpy.run_path(sys.argv[1], run_name="__main__")
    sys.stdout.flush()
    os._exit(0)
