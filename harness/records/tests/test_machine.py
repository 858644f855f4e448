"""Environments name what numbers depend on, and nothing that names the machine."""

from __future__ import annotations

import getpass
import json
import platform
import re

import pytest

from harness.processes.environment import describe
from harness.records import machine
from harness.records.machine import parse_cpuinfo, start_of_run

INTEL = """processor\t: 0
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
stepping\t: 8
flags\t\t: fpu sse4_2 avx f16c fma avx2 avx512f avx512_bf16 amx_bf16 hypervisor

processor\t: 1
model name\t: another
"""
ARM = """processor\t: 0
Features\t: fp asimd fphp asimdhp sve bf16
CPU implementer\t: 0x41
CPU part\t: 0xd40
CPU revision\t: 1

Serial\t\t: 00000000deadbeef
"""


def test_the_first_processor_of_linux_is_read() -> None:
    assert parse_cpuinfo(INTEL) == {
        "model": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
        "version": "6.143.8",
        "instructions": [
            *("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_bf16"),
            "amx_bf16",
        ],
    }


def test_an_arm_has_no_name_but_a_part_and_never_its_serial_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "processor", lambda: "aarch64")
    found = parse_cpuinfo(ARM)
    assert (found["model"], found["version"]) == ("aarch64", "0x41.0xd40.1")
    assert found["instructions"] == ["asimd", "asimdhp", "fphp", "bf16", "sve"]
    assert "deadbeef" not in json.dumps(found)


def test_what_a_system_does_not_tell_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert parse_cpuinfo("") == {"model": None, "version": None, "instructions": []}
    monkeypatch.delattr("os.getloadavg")
    assert start_of_run()["load"] is None


def test_a_mac_is_asked_by_its_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "brand_string": "Intel(R) Core(TM) i7",
        "family": "6",
        "features": "FPU SSE4.2 AVX1.0 F16C",
        "leaf7_features": "AVX2",
    }
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(machine, "_sysctl", values.get)
    assert machine.processor() == {
        "model": "Intel(R) Core(TM) i7",
        "version": "6",
        "instructions": ["sse4_2", "avx", "avx2", "f16c"],
    }


def test_an_environment_does_not_name_the_machine_or_its_user() -> None:
    described = describe("torch", "cpu", gpu=None)
    text = json.dumps(described)
    assert {"cpu", "processors", "gpu", "blas", "packages", "python"} <= set(described)
    assert described == json.loads(text)
    for name in (platform.node(), getpass.getuser()):
        assert not re.search(rf"\b{re.escape(name)}\b", text)


def test_a_start_is_utc_to_the_second() -> None:
    start = start_of_run()["start"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", start)
