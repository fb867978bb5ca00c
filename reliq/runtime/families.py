"""The declared metrics as prometheus-client has them. Needs that package (the extras `monitor` and `api`)."""

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from reliq.contract.metrics import BY_NAME


def gauge(name: str) -> GaugeMetricFamily:
    """Return a declared gauge, without values."""
    one = BY_NAME[name]
    return GaugeMetricFamily(one.name, one.help, labels=one.labels)


def counter(name: str) -> CounterMetricFamily:
    """Return a declared counter, without values."""
    one = BY_NAME[name]
    return CounterMetricFamily(one.name, one.help, labels=one.labels)


def histogram(name: str) -> HistogramMetricFamily:
    """Return a declared histogram, without values."""
    one = BY_NAME[name]
    return HistogramMetricFamily(one.name, one.help, labels=one.labels)
