"""Data of packages: found where it is installed, a sentence where it is not."""

from __future__ import annotations

import pytest

from harness.errors import HarnessError
from harness.tasks.packaged import packaged_file


@pytest.mark.parametrize(
    ("package", "path", "named"),
    [
        (
            "a-package-that-nobody-has",
            "data.txt",
            "a-package-that-nobody-has, got none",
        ),
        ("pykeen", "pykeen/datasets/none.txt", "pykeen/datasets/none.txt"),
    ],
)
def test_what_is_missing_is_named_with_the_command(
    package: str, path: str, named: str
) -> None:
    with pytest.raises(HarnessError) as error:
        packaged_file(package, path)
    assert named in str(error.value)
    assert "harness/environments/data.txt" in str(error.value)
