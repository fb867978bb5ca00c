"""The results of `make bench`, from the file that it writes: what was measured, on what, its spread, and when."""

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "benchmarks" / "results.json"
COSTS = ROOT / "reliq" / "cli" / "costs.json"
_HEAD = """# Results

One run of `make bench` on one machine; compare ratios, not absolute values, with other machines. Contestants took turns
in rounds: a figure is the median, in brackets the smallest and the largest round. Redis wrote nothing to disk, handlers
did nothing. The method, and what is not compared: [performance](performance.md).
"""


def page() -> str:
    """Return the page of the results file."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    parts = (_machine(results["machine"]), _consume(results), _rows(results["rows"]), _costs())
    return _HEAD + "\n".join(line for part in parts for line in part) + "\n"


def _machine(about: dict[str, Any]) -> Iterator[str]:
    yield from ("", "## The machine", "", "| | |", "|---|---|")
    yield from (f"| {name} | {value} |" for name, value in about.items())


def _consume(results: dict[str, Any]) -> Iterator[str]:
    yield from ("", "## Consuming, messages/s", "", "One process, 200 bytes, an empty handler.", "")
    yield from ("![Bars of all contestants](performance.svg)", "")
    yield from ("| | median | min to max | survives a crash | settings; versions |", "|---|---|---|---|---|")
    for name, rates in sorted(results["consume"].items(), key=lambda one: -statistics.median(one[1])):
        about = results["contestants"][name]
        versions = ", ".join(f"{package} {version or '(without)'}" for package, version in about["versions"].items())
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        settings = f"{about['settings']}; {versions}"
        yield f"| {name} | {statistics.median(rates):,.0f} | {spread} | {about['crash_safe']} | {settings} |"
    yield from (f"\n{name}: {why}" for name, why in results["absent"].items())


def _rows(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from ("", "## What was demanded, and what was reached", "", "| | measured | demanded |", "|---|---|---|")
    for row in rows:
        for check in row["checks"]:
            values = check["values"]
            spread = f" ({min(values):,g} to {max(values):,g})" if len(values) > 1 else ""
            demanded = f"{'at least' if check['at_least'] else 'at most'} {check['bound']:g}"
            missed = "" if check["ok"] else ": missed"
            yield f"| {row['what']}: {check['what']} | {check['value']:,g}{spread} | {demanded}{missed} |"
        yield from (f"| {row['what']} | {note} | |" for note in row["notes"])


def _costs() -> Iterator[str]:
    costs = json.loads(COSTS.read_text(encoding="utf-8"))
    yield from ("", "## Cost of one message", "")
    yield f"`{costs['command']}`, {costs['measured']}, {costs['on']}; append-only file, `appendfsync everysec`:"
    yield "microseconds of Redis' CPU and of the program's, and bytes appended to the file. *alone*: a worker that"
    yield from ("waits for each message; *full*: one that always finds some.", "")
    yield "| body | send | send_many | claim and ack, alone | claim and ack, full |"
    yield "|---|---|---|---|---|"
    sizes = [(f"{row['body']:,} B", row) for row in costs["rows"]]
    for body, row in [*sizes, ("200 B with a key", costs["keyed"])]:
        ways = [row[way] for way in ("send", "send_many", "consume", "consume_many")]
        cells = [f"{way['redis_us']:.1f}, {way['client_us']:.1f}, {way['appended']:,.0f}" for way in ways]
        yield f"| {body} | {' | '.join(cells)} |"
    yield from (
        "",
        f"What is idle, a second of it, {costs['idle_measured']}; *queue*: each further one of a worker:",
        "",
    )
    yield from ("| of | Redis' CPU, us | bytes appended |", "|---|---|---|")
    yield from (
        f"| {what} | {cost['redis_us']:,.0f} | {cost['appended']:,.0f} |" for what, cost in costs["idle"].items()
    )
    yield from ("", "A message of 200 B that is sent and handled alone; Redis sleeps in between:", "")
    yield from ("| messages/s | Redis' CPU, us | bytes appended |", "|---|---|---|")
    seldom = [(row["rate"], row["cost"]) for row in costs["seldom"]]
    yield from (f"| {rate:,} | {cost['redis_us']:,.0f} | {cost['appended']:,.0f} |" for rate, cost in seldom)
