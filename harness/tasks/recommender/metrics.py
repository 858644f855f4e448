"""How a run is measured: loss, ranks, norms and what was never named, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from harness.tasks.embeddings.rows import OVER, norms, served
from harness.tasks.embeddings.trainer import Plan, Rows
from harness.tasks.recommender.data import groups
from harness.tasks.recommender.settings import Settings
from lockstep.interface import Array

__all__ = ["TOP", "measure"]

TOP = 10


def measure(
    step: int, rows: Rows, settings: Settings, plan: Plan, held_out: Array
) -> Mapping[str, float]:
    """Measure tables after ``step`` steps.

    ``loss``: mean over held-out choices, in nats, of the loss that is trained.
    ``hits``: share of held-out choices among the 10 best of 101 items.
    ``norm/GROUP``: median norm of such items' rows, as they are used.
    ``highest/named``: highest norm of an item's row that the latest step named, over
    the limit; before the first step, of all rows. ``highest/stored``,
    ``highest/served``: of all items' rows in the table, and as they are used.
    ``above``: share of the items' rows that are used with a norm above the limit;
    ``drifted``: how many such rows some step has named.
    ``unnamed``, ``changed``: items that no step has named, and how many of their rows
    are not what they were at first.
    """
    used = {name: served(table, settings) for name, table in rows.items()}
    lengths = np.linalg.norm(used["item"], axis=1)
    stored = norms(rows["item"])
    latest = plan.named("item", max(step - 1, 0), step)
    of_latest = stored[latest] if step else stored
    above = lengths > OVER * settings.max_norm
    unnamed = np.ones(settings.items, bool)
    unnamed[plan.named("item", 0, step)] = False
    changed = (rows["item"] != plan.weights["item"]).any(axis=1)
    return {
        **_quality(used, held_out),
        **{
            f"norm/{name}": float(np.median(lengths[part]))
            for name, part in groups(settings.items).items()
        },
        "highest/named": float(of_latest.max() / settings.max_norm),
        "highest/stored": float(stored.max() / settings.max_norm),
        "highest/served": float(lengths.max() / settings.max_norm),
        "above": float(above.mean()),
        "drifted": int((above & ~unnamed).sum()),
        "unnamed": int(unnamed.sum()),
        "changed": int((changed & unnamed).sum()),
    }


def _quality(used: Rows, held_out: Array) -> dict[str, float]:
    """Return loss and hits; ties count half."""
    users, items = used["user"][held_out[:, 0]], used["item"][held_out[:, 1:]]
    scores = np.einsum("cw,ciw->ci", users, items)
    chosen, others = scores[:, :1], scores[:, 1:]
    loss = np.logaddexp(0, -chosen[:, 0]) + np.logaddexp(0, others[:, 0])
    ranks = 1 + (others > chosen).sum(axis=1) + (others == chosen).sum(axis=1) / 2
    return {"loss": float(loss.mean()), "hits": float((ranks <= TOP).mean())}
