"""What a claim costs in a queue with `concurrency`, by the number of its consumers."""

from typing import Any

import reliq
from bench.suite.flat import BODY
from bench.suite.growth import Longest, state
from bench.suite.harness import Check, Row, Setting
from reliq import ops
from reliq.model.keys import QueueKeys, new_owner
from reliq.ops import Claimed, Steps
from reliq.protocol.claimant import Claimant
from reliq.protocol.limits import Limits

FEW, MANY = 10, (8_000, 100_000)
BOUND_MS = 2.0
BOUND = 2.0  #: times what it costs with few consumers
_LEASE = 3600.0
_ROOM = 2**30
_KEYS = QueueKeys("bench")
_TURNS = 2_000
_AT_WORK = 20  #: consumers that claim and settle in turns


def _limited(app: reliq.Reliq, size: int) -> None:
    """Every fourth consumer holds a message; that and half as much is allowed."""
    queue = app.queue(_KEYS.queue)
    for start in range(0, size, 1000):
        owners = [new_owner(connected=False) for _ in range(min(1000, size - start))]
        queue.send_many([BODY] * len(owners[::4]))
        app.store.call([ops.register(_KEYS, one, _LEASE) for one in owners])
        app.store.call([ops.claim(_KEYS, one, _LEASE, 1) for one in owners[::4]])
    queue.configure(concurrency=max(_AT_WORK, size * 3 // 8))
    queue.send_many([BODY] * _TURNS)


def _turns(app: reliq.Reliq, count: int) -> None:
    """Let consumers in turns claim a message and settle it."""
    at_work = []
    for _ in range(_AT_WORK):
        one = Claimant(_KEYS, new_owner(connected=False), _LEASE)
        app.store.call(one.register())
        at_work.append((one, Limits(_KEYS, _LEASE)))
    for number in range(count):
        app.store.run(_turn(*at_work[number % _AT_WORK]))


def _turn(one: Claimant, limits: Limits) -> Steps[None]:
    claimed: Claimed = yield from one.claim(limits, 1, _ROOM)
    yield from one.settle(claimed.elements, in_row=True)


def _measured(size: int) -> tuple[float, dict[str, list[float]]]:
    """Return the microseconds of a claim and a settlement, and the commands that were logged as long."""
    with state(_limited, size) as (app, client):
        longest = Longest(client)
        _turns(app, _AT_WORK)  # the first one counts what all consumers hold
        client.config_resetstat()
        _turns(app, _TURNS - _AT_WORK)
        called: dict[str, Any] = client.info("commandstats")["cmdstat_evalsha"]
        return called["usec"] / (_TURNS - _AT_WORK), longest.found()


def rows(setting: Setting) -> list[Row]:
    """Measure a claim with its settlement, beside few consumers and beside many."""
    few, _ = _measured(FEW)
    found = []
    for size in map(setting.volume, MANY):
        row = Row(f"limits: concurrency, {size:,} consumers")
        micros, logged = _measured(size)
        row.checks = [
            Check(f"us, times that of {FEW} consumers", [micros / few], BOUND, at_least=False),
            Check("longest, ms", [max((ms[0] for ms in logged.values()), default=0.0)], BOUND_MS, at_least=False),
        ]
        row.notes = [f"claim + settle, us of Redis: {few:.0f} with {FEW} consumers, {micros:.0f} with {size:,}"]
        row.figures = {"few_us": few, "us": micros, "longest": logged}
        found.append(row)
        print(f"  {row.what}: {row.verdict}", *row.notes, sep="\n    ", flush=True)
    return found
