"""A description of the machine: its processor, the time, and its load.

Nothing here identifies the machine: no host name, no serial number.
"""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["blas_library", "parse_cpuinfo", "processor", "start_of_run"]

INSTRUCTIONS = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16"),
    *("avx512_fp16", "avx512_vnni", "amx_bf16", "amx_fp16", "amx_tile"),
    *("asimd", "asimdhp", "fphp", "bf16", "i8mm", "sve", "sve2"),
)
"""Instruction sets by which libraries choose how to add and multiply."""

APPLE_KEYS = ("brand_string", "family", "model", "stepping")
APPLE_FEATURES = ("features", "leaf7_features")


def processor() -> dict[str, Any]:
    """Return model, version and instruction sets of the processor, if known."""
    if platform.system() == "Darwin":
        return _apple_processor()
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:
        text = ""
    return parse_cpuinfo(text)


def parse_cpuinfo(text: str) -> dict[str, Any]:
    """Parse ``/proc/cpuinfo``; of several processors, only the first.

    ``version`` is family, model and stepping, because hypervisors shorten model names.
    """
    lines = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    fields = {name.strip(): value.strip() for name, _, value in lines}
    numbers = [fields.get(name) for name in ("cpu family", "model", "stepping")]
    if "CPU part" in fields:
        names = ("CPU implementer", "CPU part", "CPU revision")
        numbers = [fields.get(name) for name in names]
    flags = fields.get("flags", fields.get("Features", "")).split()
    model = fields.get("model name") or platform.processor() or None
    return _described(model, numbers, flags)


def _apple_processor() -> dict[str, Any]:
    model, *numbers = map(_sysctl, APPLE_KEYS)
    features = " ".join(filter(None, map(_sysctl, APPLE_FEATURES))).lower()
    # Intel's names. Apart from the dots, only one differs from the name on Linux.
    flags = features.replace("avx1.0", "avx").replace(".", "_").split()
    return _described(model, numbers, flags)


def _described(
    model: str | None, numbers: list[str | None], flags: list[str]
) -> dict[str, Any]:
    known = [number for number in numbers if number]
    return {
        "model": model,
        "version": ".".join(known) or None,
        "instructions": [name for name in INSTRUCTIONS if name in flags],
    }


def _sysctl(name: str) -> str | None:
    """Return a value from macOS's sysctl, or None if this Mac does not have it."""
    command = ["sysctl", "-n", f"machdep.cpu.{name}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


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
