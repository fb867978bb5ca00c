"""The metric of unroutable messages. Needs the package prometheus-client, as the exporter does."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client.core import Metric

from reliq import ops
from reliq.features.topics import ops as own
from reliq.ops import Steps
from reliq.protocol.partial_reads import or_unseen
from reliq.runtime.families import counter


def unroutable_messages(run: Callable[[Steps[Any]], Any], queues: Sequence[str]) -> Iterator[Metric]:
    """Count what was published and matched no binding, in all; nothing while the node of the bindings is away."""
    unroutable = run(or_unseen("the count of unroutable messages", ops.one(own.unroutable()), -1))
    if unroutable >= 0:
        metric = counter("reliq_messages_unroutable_total")
        metric.add_metric([], unroutable)
        yield metric
