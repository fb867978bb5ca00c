"""Make docs/operations/reliability.md and its picture from what `tools/faults.py` has kept of the fault campaign."""

import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.campaign.scenarios import SCENARIOS, named

PAGE = Path(__file__).parents[1] / "docs/operations/reliability.md"
RESULTS, PICTURE = PAGE.with_suffix(".json"), PAGE.with_suffix(".svg")

#: The rows in which something may be lost.
LOSSES = ("redis-kill-everysec", "redis-rewound", "sentinel-memory")

_OTHER_ROWS = """In all other rows nothing may be lost.
"""

TOP = """# Results of the fault campaign

<!-- made by tools/reliability.py from reliability.json: change these -->
The [fault campaign](chaos.md#the-fault-campaign) at full volume, on two cores that other work
shared. A row has passed, unless it says otherwise: its checker found no violation.
`reliability.json` has dates, commits and seeds.

<!-- not run: it takes hours -->
```sh
make faults                # all rows; continues after an interruption
make faults-mutants        # mutants of reliq, each of which the checker must find
python -m tests.campaign --scenario sigkill --full      # one row; `list` shows all
```
"""


def page(rows: Sequence[dict[str, Any]], notes: Sequence[str] = ()) -> str:
    """Return the page."""
    parts = [TOP, "\n## The rows\n\n", _table(rows)]
    if failed := [row for row in rows if not row["good"]]:
        parts += ["\n## Not passed\n\n", *map(_failure, failed)]
    parts += ["\n## Predicted and actual loss\n\n", _losses(rows)]
    parts += ["\n## Recovery\n\n", _recoveries(rows), "\n![recovery times](reliability.svg)\n"]
    parts += ["\n## Not in this run\n\n", _absent(rows)]
    if notes:
        parts += ["\n## Notes on this run\n\n", *map(_point, notes)]
    return "".join(parts)


def _point(text: str) -> str:
    """Return an entry of a list."""
    return textwrap.fill(f"- {text}", 100, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def _table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| row | fault | volume | messages | duplicate runs | refused sends | lost |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        scenario, verdict = named(row["scenario"]), row["verdict"]
        about, unit = (scenario.about, scenario.unit) if scenario else ("", "")
        lost = verdict["broken"].get("lost", 0) + verdict["lost in a window"]
        lines.append(
            f"| `{row['scenario']}`{'' if row['good'] else ' **not passed**'} | {about} | {row['done']:,} {unit} | "
            f"{verdict['messages']:,} | "
            f"{sum(verdict['extra runs'].values()):,} | {sum(verdict['refused sends'].values()):,} | {lost:,} |"
        )
    return "\n".join(lines) + "\n"


def _failure(row: dict[str, Any]) -> str:
    broken = row["verdict"]["broken"] or {"not drained in time": 1}
    text = "; ".join(
        f"{rule}: {count} ({', '.join(row['verdict']['examples'].get(rule, [])[:1])})" for rule, count in broken.items()
    )
    return _point(f"`{row['scenario']}`: {text}")


def _losses(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| row | possible loss that `reliq doctor` predicts | lost | of |", "|---|---|---|---|"]
    for row in rows:
        if row["scenario"] in LOSSES:
            verdict = row["verdict"]
            lines.append(
                f"| `{row['scenario']}` | {row.get('predicted') or '-'} | {verdict['lost in a window']:,} | "
                f"{verdict['messages']:,} |"
            )
    return "\n".join(lines) + "\n\n" + _OTHER_ROWS


def _recoveries(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "Seconds from a kill until another worker has the message.\n",
        "| row | messages | median | p99 | maximum |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row['scenario']}` | {times['count']:,} | {times['p50']} | {times['p99']} | {times['max']} |"
        for row in rows
        if (times := row["verdict"]["recovery"])
    ]
    return "\n".join(lines) + "\n"


def _absent(rows: Sequence[dict[str, Any]]) -> str:
    ran = {row["scenario"] for row in rows}
    absent = [_point(f"`{one.name}`: {one.about}.") for one in SCENARIOS if one.name not in ran]
    short = [
        _point(f"`{row['scenario']}` had {row['done']:,} of {row['full']:,}.")
        for row in rows
        if row["done"] < row["full"]
    ]
    return "".join([*absent, *short, MISSING])


MISSING = """- A system clock of Redis that moves: see [the runbook](../runbooks/redis-clock-jumped.md).
"""


# --- the picture ---

_WIDTH, _HEIGHT, _LEFT, _BELOW = 640, 300, 60, 50
_COLOURS = ("#c0392b", "#2471a3", "#1e8449", "#7d3c98")


def picture(rows: Sequence[dict[str, Any]]) -> str:
    """Return an SVG: which share of the messages was back after how many seconds."""
    curves = [(row["scenario"], row["recoveries"]) for row in rows if row["recoveries"]]
    longest = max((times[-1] for _, times in curves), default=1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for share in (0, 50, 90, 100):
        y = _y(share / 100)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 20}" y1="{y}" y2="{y}" stroke="#d5d8dc"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{share} %</text>')
    for step in range(6):
        seconds = longest * step / 5
        parts.append(
            f'<text x="{_x(seconds, longest)}" y="{_HEIGHT - _BELOW + 18}" text-anchor="middle">{seconds:.1f} s</text>'
        )
    for number, (name, times) in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{_x(seconds, longest)},{_y(place / (len(times) - 1))}" for place, seconds in enumerate(times)
        )
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>')
        parts.append(f'<text x="{_LEFT + 110 * number}" y="{_HEIGHT - 8}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _x(seconds: float, longest: float) -> float:
    return round(_LEFT + (_WIDTH - _LEFT - 20) * seconds / longest, 1)


def _y(share: float) -> float:
    return round(20 + (_HEIGHT - _BELOW - 20) * (1 - share), 1)


def main() -> int:
    kept = json.loads(RESULTS.read_text())
    PAGE.write_text(page(kept["rows"], kept["notes"]))
    PICTURE.write_text(picture(kept["rows"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
