"""The environment of a run: variables, versions, the processor, the time and load.

Nothing here identifies the machine: no host name, no serial number.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("numpy", "scikit-learn", "scipy", "pandas", "keras")
"""Packages that a run depends on, besides Lockstep and its framework."""

THREADS = "1"

INSTRUCTIONS = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16"),
    *("avx512_fp16", "avx512_vnni", "amx_bf16", "amx_fp16", "amx_tile"),
    *("asimd", "asimdhp", "fphp", "bf16", "i8mm", "sve", "sve2"),
)
"""Instruction sets by which libraries choose how to add and multiply."""


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
    config = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    library = " ".join(filter(None, (blas.get("name"), blas.get("version"))))
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu": processor(),
        "processors": os.cpu_count(),
        "threads": int(THREADS),
        "device": device,
        "gpu": gpu,
        "blas": library or None,
        "packages": {name: version(name) for name in (framework, *PACKAGES)},
    }


def processor(source: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """Return model, version and instruction sets of the first processor, if known.

    ``version`` is family, model and stepping, because hypervisors shorten model names.
    Only Linux tells more than the model.
    """
    text = source.read_text("utf-8", "replace") if source.exists() else ""
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    fields = {name.strip(): value.strip() for name, _, value in lines}
    names = ["cpu family", "model", "stepping"]
    if "CPU part" in fields:
        names = ["CPU implementer", "CPU part", "CPU revision"]
    numbers = [fields[name] for name in names if name in fields]
    flags = fields.get("flags", fields.get("Features", "")).split()
    return {
        "model": fields.get("model name") or platform.processor() or None,
        "version": ".".join(numbers) or None,
        "instructions": [name for name in INSTRUCTIONS if name in flags],
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


def start_of_run() -> dict[str, Any]:
    """Return the time in UTC and the machine's load (None if unknown)."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        return {"start": now, "load": round(os.getloadavg()[0], 2)}
    except (AttributeError, OSError):
        return {"start": now, "load": None}
