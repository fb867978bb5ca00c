"""The table `reliq.contract.metrics` as a page."""

from collections.abc import Iterable

from reliq.contract import metrics
from reliq.contract.metrics import Declared

_HEAD = """# Metrics

From the table `reliq.contract.metrics`; the [counters of a queue](outcomes.md#counters-of-a-queue) have a page with the
outcomes. [Where they are, and how to read them](../operations/metrics.md).
"""
_GROUPS = (
    ("Queues", metrics.QUEUES),
    ("Features", metrics.FEATURES),
    ("Partitions and workers", metrics.PARTITIONS),
    ("Times", metrics.TIMES),
    ("The monitor", metrics.MONITOR),
    ("Redis", metrics.REDIS),
)


def page() -> str:
    """Return the page with all metrics but the counters of queues."""
    return _HEAD + "".join(f"\n## {title}\n\n{_table(group)}" for title, group in _GROUPS)


def _table(group: Iterable[Declared]) -> str:
    rows = (f"| `{one.name}` | {one.kind} | {', '.join(one.labels)} | {one.help}{_see(one)} |\n" for one in group)
    return "| metric | kind | labels | value |\n|---|---|---|---|\n" + "".join(rows)


def _see(one: Declared) -> str:
    return f" ([more]({one.see}))" if one.see else ""
