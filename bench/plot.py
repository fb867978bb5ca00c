"""Messages/s of all contestants as bars: python bench/plot.py results.json consume.svg (needs matplotlib)."""

import json
import statistics
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "reliq"
mpl.rcParams["svg.fonttype"] = "none"  # text as text: a tenth of the size

from matplotlib import pyplot as plt  # noqa: E402


def main(source: str, target: str) -> None:
    result = json.loads(Path(source).read_text())
    rates = sorted(result["consume"].items(), key=lambda one: statistics.median(one[1]))
    middle = [statistics.median(values) for _, values in rates]
    below = [place - min(values) for place, (_, values) in zip(middle, rates, strict=True)]
    above = [max(values) - place for place, (_, values) in zip(middle, rates, strict=True)]
    figure, axes = plt.subplots(figsize=(8, 5.2), layout="constrained")
    colours = ["#c0392b" if name.startswith("reliq") else "#8395a7" for name, _ in rates]
    axes.barh([name for name, _ in rates], middle, xerr=[below, above], color=colours, capsize=2)
    for place, rate in enumerate(middle):
        axes.text(rate * 1.15, place + 0.12, f"{rate:,.0f}", va="bottom", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(right=max(middle) * 4)
    axes.set_xlabel("messages/s, one process, 200 bytes, empty handler (median, min to max)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
