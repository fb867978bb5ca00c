"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from reliq.ops.request import Argument, Call


def charge(
    *,
    config: str,
    flow: str,
    buckets: str,
    charged: str,
    reserved: Argument,
    actual: Argument,
    group: Argument,
    kept_ms: Argument,
) -> Call:
    return "charges/charge", (config, flow, buckets, charged), (reserved, actual, group, kept_ms)
