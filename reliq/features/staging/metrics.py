"""The metric of staged jobs. Needs the package prometheus-client, as the exporter does."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from reliq.errors import RedisUnsuitable
from reliq.features.staging.jobs import StagedJob, read_jobs
from reliq.ops import Steps


def staged_messages(run: Callable[[Steps[Any]], Any], queues: Sequence[str]) -> Iterator[Metric]:
    """Count what jobs of these queues, and of several, have staged and not yet made visible."""
    metric = GaugeMetricFamily(
        "reliq_staged_messages",
        "Messages of Spark jobs that are staged and not yet visible; the queue of a job of several is @several.",
        labels=["queue", "state"],
    )
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    for job in _jobs(run, queues):
        counts[job.queue or "@several", job.state] += job.invisible
    for labels, count in sorted(counts.items()):
        metric.add_metric(labels, count)
    yield metric


def _jobs(run: Callable[[Steps[Any]], Any], queues: Sequence[str]) -> Sequence[StagedJob]:
    """Read the jobs; none if a key of one of them has a foreign type, which must not hide the queues."""
    try:
        jobs: Sequence[StagedJob] = run(read_jobs(queues))
    except RedisUnsuitable:
        return ()
    return jobs
