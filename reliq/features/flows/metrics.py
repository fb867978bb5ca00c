"""The metric of flows. Needs the package prometheus-client, as the exporter does."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client.core import Metric

from reliq.features.flows.steps import AT_ONCE, open_flows
from reliq.ops import Steps
from reliq.protocol.partial_reads import or_unseen
from reliq.runtime.families import gauge

_STATES = ("sending", "open", "cancelled", "abandoned")


def flows_by_state(run: Callable[[Steps[Any]], Any], queues: Sequence[str]) -> Iterator[Metric]:
    """Count the oldest flows that have not ended, by state; nothing while the node of their records is away."""
    found = run(or_unseen("the flows", open_flows(AT_ONCE), None))
    if found is None:
        return
    metric = gauge("reliq_flows")
    counts = Counter(one.state for one in found)
    for state in {*_STATES, *counts}:
        metric.add_metric([state], counts[state])
    yield metric
