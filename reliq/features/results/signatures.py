"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call


def result(keys: NamedKeys, *, id: Argument, wait: float) -> Call:
    return "results/result", (*keys.outcomes,), (id, wait)
