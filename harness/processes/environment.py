"""The environment of a run, without anything that identifies the machine."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping

from harness.records.machine import blas_library, processor

PACKAGES = ("numpy", "scikit-learn", "scipy", "pandas", "keras")
"""Packages that a run depends on, besides Lockstep and its framework."""

THREADS = "1"


def child_variables() -> dict[str, str]:
    """Return a worker's environment variables: our path, one thread, a quiet TF.

    They must be set before any import. oneDNN is disabled: it changes last digits.
    """
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), THREADS)
    threads |= dict.fromkeys(
        ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), THREADS
    )
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
    keras = {"KERAS_BACKEND": "tensorflow"}
    paths = os.pathsep.join(filter(None, sys.path))
    # A benchmark may be started by a test in one of several pytest processes.
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return {**inherited, **threads, **quiet, **keras, "PYTHONPATH": paths}


def describe(framework: str, device: str, gpu: str | None = None) -> dict[str, object]:
    """Return everything that the numbers of a run may depend on.

    ``gpu`` is the name of the device, see ``device_name``.
    """
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu": processor(),
        "processors": os.cpu_count(),
        "threads": int(THREADS),
        "device": device,
        "gpu": gpu,
        "blas": blas_library(),
        "packages": {name: version(name) for name in (framework, *PACKAGES)},
    }


def device_name(framework: str, device: str) -> str | None:
    """Return a GPU's model name, without a serial number; None for a CPU."""
    if not device.startswith("cuda"):
        return None
    if framework == "torch":
        return str(importlib.import_module("torch").cuda.get_device_name(device))
    config = importlib.import_module("tensorflow").config
    first = config.list_physical_devices("GPU")[0]
    return str(config.experimental.get_device_details(first)["device_name"])


def version(package: str) -> str | None:
    """Return the version of an installed package, or None if it is not installed."""
    aliases: Mapping[str, tuple[str, ...]] = {
        "tensorflow": ("tensorflow", "tensorflow-cpu")
    }
    for name in aliases.get(package, (package,)):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
