"""Environments name what numbers depend on, and nothing that names the machine."""

from __future__ import annotations

import getpass
import json
import platform
import re
from pathlib import Path

import pytest

from harness.processes.environment import describe, processor, start_of_run

TEXT = """processor\t: 0
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
stepping\t: 8
flags\t\t: fpu sse4_2 avx f16c fma avx2 amx_bf16 hypervisor

processor\t: 1
model name\t: another
"""


def test_the_first_processor_is_described_as_far_as_the_system_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "processor", lambda: "chip")
    path = tmp_path / "cpuinfo"
    assert processor(path) == {"model": "chip", "version": None, "instructions": []}
    path.write_text(TEXT)
    assert processor(path) == {
        "model": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
        "version": "6.143.8",
        "instructions": ["sse4_2", "avx", "avx2", "fma", "f16c", "amx_bf16"],
    }


def test_an_environment_does_not_name_the_machine_or_its_user() -> None:
    described = describe("torch", "cpu", gpu=None)
    text = json.dumps(described)
    assert {"cpu", "processors", "gpu", "blas", "packages", "python"} <= set(described)
    for name in (platform.node(), getpass.getuser()):
        assert not re.search(rf"\b{re.escape(name)}\b", text)


def test_a_start_is_utc_to_the_second() -> None:
    start = start_of_run()["start"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", start)
