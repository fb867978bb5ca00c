"""The metrics of staged jobs. Needs the package prometheus-client, as the exporter does."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from prometheus_client.core import Metric

from reliq.errors import RedisUnavailable, RedisUnsuitable
from reliq.features.staging.jobs import StagedJob, counts_of, read_ended, read_jobs
from reliq.ops import Steps
from reliq.runtime.families import gauge

T = TypeVar("T")


def staged_messages(run: Callable[[Steps[Any]], Any], queues: Sequence[str]) -> Iterator[Metric]:
    """Count what jobs of these queues, and of several, have staged and not yet made visible."""
    metric = gauge("reliq_staged_messages")
    counts: defaultdict[tuple[str, str], int] = defaultdict(int)
    for job in _jobs(run, queues):
        counts[job.queue or "@several", job.state] += job.invisible
    for labels, count in sorted(counts.items()):
        metric.add_metric(labels, count)
    yield metric


def latest_job(run: Callable[[Steps[Any]], Any], queues: Sequence[str]) -> Iterator[Metric]:
    """Tell what the latest job of each queue that has ended has done, and when."""
    metric = gauge("reliq_job_latest")
    for queue, job in _or_none(run, read_ended(queues, count=1)):
        counts = {name: count for name, count in counts_of(job).items() if name != "queues"}
        for what, count in {**counts, "ended": job.ended / 1000}.items():
            metric.add_metric([queue or "@several", what], count)
    yield metric


def _jobs(run: Callable[[Steps[Any]], Any], queues: Sequence[str]) -> Sequence[StagedJob]:
    return _or_none(run, read_jobs(queues))


def _or_none(run: Callable[[Steps[Any]], Any], steps: Steps[Sequence[T]]) -> Sequence[T]:
    """Read; nothing if a key has a foreign type or a node is away, which must not hide the queues."""
    try:
        found: Sequence[T] = run(steps)
    except (RedisUnsuitable, RedisUnavailable):
        return ()
    return found
