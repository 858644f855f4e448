"""The figure of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure as Canvas

from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme
from harness.judgement.finding import Finding
from harness.tasks.throughput.tables import first_net

__all__ = ["drawings"]

PEERS = ("fp32", "tf32", "GradScaler fp16", "autocast bf16")
"""The modes without any part of ours."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figure; nothing without runs of fp32 on a GPU."""
    if "rates" in finding.tables and finding.tables["rates"]["speedup"].notna().any():
        yield rates(finding)


def rates(finding: Finding) -> Drawing:
    """Examples per second relative to float32; a bar per mode."""
    measured = finding.tables["rates"].dropna(subset=["speedup"])
    table = first_net(measured)
    best = table.sort_values("speedup").iloc[-1]
    tf32 = table[table["mode"] == "tf32"]["speedup"]
    base, over = ("TF32", tf32.iloc[0]) if len(tf32) else ("float32", 1.0)

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        places = range(len(table))
        colours = [
            theme.faint if mode in PEERS else theme.methods["default"]
            for mode in table["mode"]
        ]
        spread = [
            table["speedup"] - table["speedup_low"],
            table["speedup_high"] - table["speedup"],
        ]
        axes.barh(places, table["speedup"], color=colours, height=0.6)
        axes.errorbar(
            table["speedup"], places, xerr=spread, fmt="none", ecolor=theme.ink
        )
        for place, (_, row) in zip(places, table.iterrows(), strict=True):
            text = f" {row['rate']:,.0f} / s"
            axes.annotate(text, (row["speedup_high"], place), va="center")
        axes.margins(x=0.25)
        axes.set_yticks(places, table["mode"])
        axes.invert_yaxis()
        axes.axvline(1, color=theme.ink, lw=1, ls=":")
        axes.set_xlabel("examples a second, over those of float32")
        axes.grid(visible=False, axis="y")

    return Drawing(
        "rates",
        f"{best['mode']} trains {best['speedup'] / over:.1f} times as fast as {base} "
        f"on {best['device']}",
        alt=f"Examples a second of each precision over float32's. {finding.answer}",
        caption="Median over seeds with its 95% interval; numbers are examples a "
        "second. Grey: without any part of Lockstep.",
        data=table,
        size=(WIDTH, 3.0),
        paint=paint,
    )
