"""One rank of examples: ``torchrun example_rank.py PORT SCRIPT PORT SCRIPT ...``.

The examples run one after the other, so that they share the imports. Rank 0 prints the
path of each script before it starts. Every script imports Lockstep anew, and its ranks
meet at a port of their own: at the port of ``torchrun`` is what the last script left.

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
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    for port, script in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        os.environ["MASTER_PORT"] = port
        for name in [name for name in sys.modules if name.split(".")[0] == "lockstep"]:
            del sys.modules[name]
        if os.environ["RANK"] == "0":
            print(script, flush=True)
        runpy.run_path(script, run_name="__main__")
    sys.stdout.flush()
    os._exit(0)
