"""Data of packages: found where it is installed, a sentence where it is not."""

from __future__ import annotations

import pytest

from harness.errors import HarnessError
from harness.tasks.packaged import packaged_file


@pytest.mark.parametrize(
    ("package", "got"),
    [("a-package-that-nobody-has", "none"), ("pykeen", "no such file")],
)
def test_what_is_missing_is_named_with_the_command(package: str, got: str) -> None:
    with pytest.raises(HarnessError, match=f"{package}, got {got}") as error:
        packaged_file(package, f"{package}/none.txt")
    assert "harness/environments/data.txt" in str(error.value)
