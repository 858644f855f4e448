"""What the machine says about itself when a run starts."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

__all__ = ["start_of_run"]


def start_of_run() -> dict[str, Any]:
    """Return the time in UTC and the load of the machine, if the system can tell."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        return {"start": now, "load": round(os.getloadavg()[0], 2)}
    except (AttributeError, OSError):
        return {"start": now, "load": None}
