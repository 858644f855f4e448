import contextlib
import os
import runpy
import shutil
import tempfile
from pathlib import Path

from lockstep import cli

program = Path(__file__).with_name("old_program.txt")


def lockstep(*words):
    print("$ lockstep", *words)
    with contextlib.suppress(SystemExit):
        cli.main(words)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    shutil.copy(program, "train.py")
    lockstep("port", "train.py")
    lockstep("port", "train.py", "--write", "--diff")
    print("$ python train.py")
    runpy.run_path("train.py", run_name="__main__")
    os.chdir("/")
