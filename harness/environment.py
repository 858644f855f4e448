"""The environment of a run, without what would identify the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping

__all__ = ["PACKAGES", "THREADS", "child_variables", "describe"]

PACKAGES = ("numpy", "scikit-learn", "scipy", "pandas", "keras")
"""What a run depends on beside Lockstep and its framework."""

THREADS = "1"


def child_variables() -> dict[str, str]:
    """Return a worker's environment variables: our path, one thread, a quiet TF.

    They must be set before anything is imported: oneDNN changes last digits.
    """
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), THREADS)
    threads |= dict.fromkeys(
        ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), THREADS
    )
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
    keras = {"KERAS_BACKEND": "tensorflow"}
    paths = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, **threads, **quiet, **keras, "PYTHONPATH": paths}


def describe(framework: str, device: str) -> dict[str, object]:
    """Return what the numbers of a run may depend on."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "threads": int(THREADS),
        "device": device,
        "packages": {name: version(name) for name in (framework, *PACKAGES)},
    }


def version(package: str) -> str | None:
    """Return the version of an installed package, None if it is not installed."""
    aliases: Mapping[str, tuple[str, ...]] = {
        "tensorflow": ("tensorflow", "tensorflow-cpu")
    }
    for name in aliases.get(package, (package,)):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
