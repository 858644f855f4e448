"""A description of the machine: its processor, the time, and its load.

Nothing here identifies the machine: no host name, no serial number.
"""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

INSTRUCTIONS = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16"),
    *("avx512_fp16", "avx512_vnni", "amx_bf16", "amx_fp16", "amx_tile"),
    *("asimd", "asimdhp", "fphp", "bf16", "i8mm", "sve", "sve2"),
)
"""Instruction sets by which libraries choose how to add and multiply."""


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


def blas_library() -> str | None:
    """Return the name and version of the BLAS that NumPy was built with."""
    config = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return " ".join(filter(None, (blas.get("name"), blas.get("version")))) or None


def start_of_run() -> dict[str, Any]:
    """Return the time in UTC and the machine's load (None if unknown)."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        return {"start": now, "load": round(os.getloadavg()[0], 2)}
    except (AttributeError, OSError):
        return {"start": now, "load": None}
