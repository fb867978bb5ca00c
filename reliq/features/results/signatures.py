"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Sequence

from reliq.ops.request import Argument, Call


def result(*, outcomes: Sequence[str], id: Argument, wait: float) -> Call:
    return "results/result", (*outcomes,), (id, wait)
