"""Small pages: what the library and its monitors do in parts of a hundred, they do in parts of two or three here.

A simulation has a few dozen messages. With the pages of users each of them would be on the first one.
"""

import contextlib
from collections.abc import Iterator
from unittest import mock

from reliq.features.flows import sending, telling
from reliq.features.flows import steps as flows
from reliq.features.prepared import steps as prepared
from reliq.features.steps import moving, parked
from reliq.features.tracking import ops as tracking
from reliq.protocol import claimant, dead_letters, delayed, limits, queue, relocation, resizing, workers
from reliq_monitor import leases, promote, reclaim, retention

#: Each number that says how much is done in one call.
SIZES = (
    (claimant, "_MOVED_AT_ONCE", 2),
    (claimant, "_SINGLY_AT_ONCE", 3),
    (dead_letters, "_DISCARDED", 2),
    (dead_letters, "_REDRIVEN", 2),
    (delayed, "_HASTENED", 2),
    (flows, "AT_ONCE", 2),
    (leases, "_AT_ONCE", 2),
    (limits, "_AT_ONCE", 2),
    (moving, "_FIELDS", 2),
    (moving, "_PAGE", 2),
    (parked, "_PAGE", 2),
    (parked, "_REMOVED", 2),
    (prepared, "_PAGE", 2),
    (promote, "BATCH", 2),
    (queue, "_PURGE_STEP", 3),
    (reclaim, "BATCH", 2),
    (relocation, "_STRAYS", 2),
    (resizing, "_STRAYS", 2),
    (retention, "TRIMMED_AT_ONCE", 2),
    (sending, "AT_ONCE", 2),
    (telling, "AT_ONCE", 2),
    (telling, "_TEXTS", 2),
    (tracking, "REMOVALS", 2),
    (tracking, "SWEEP", 3),
    (workers, "_CONSUMERS", 2),
)


@contextlib.contextmanager
def of_seed(seed: int) -> Iterator[None]:
    """Make the pages small in the simulation of each fourth seed."""
    with contextlib.ExitStack() as stack:
        for module, name, size in SIZES if seed % 4 == 3 else ():
            stack.enter_context(mock.patch.object(module, name, size))
        yield
