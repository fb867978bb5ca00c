"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call


def charge(
    keys: NamedKeys, *, charged: str, reserved: Argument, actual: Argument, group: Argument, kept_ms: Argument,
) -> Call:
    return "charges/charge", (keys.config, keys.flow, keys.buckets, charged), (reserved, actual, group, kept_ms)
