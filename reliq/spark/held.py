"""`reliq spark claims`: the micro-batches that streams hold, and what gives them back."""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from reliq import ops
from reliq.errors import InvalidSetting, ReliqError
from reliq.model.keys import QueueKeys, check_name
from reliq.model.worker import Consuming
from reliq.ops import Steps
from reliq.protocol.application import eviction_allowed, url_from_environment
from reliq.protocol.partial_reads import every_queue
from reliq.protocol.workers import consuming
from reliq.spark.claims import Claims
from reliq.spark.session import command, say
from reliq.transport.store import Store

_WHILE_RELEASED = 60.0  #: seconds for which a batch is kept together while it is given back
_CONSUMER = re.compile(r"s([0-9a-f]+)\.(\d+)")


@dataclass(frozen=True)
class Held:
    """What a stream holds of one home of a queue, as one micro-batch. Times in seconds.

    `renewed`: since the driver has said that it lives, which it does every third of the lease. `left`: of the lease.
    """

    stream: str
    batch: int
    queue: str
    home: str
    consumer: str
    messages: int
    driver: str
    renewed: float | None
    left: float | None

    @property
    def claims(self) -> Claims:
        return Claims(QueueKeys(self.home), _WHILE_RELEASED)

    @property
    def may_live(self) -> bool:
        """Whether its driver has not missed a renewal yet."""
        if self.renewed is None or self.left is None:
            return False
        return self.renewed <= (self.renewed + self.left) / 3


def read_held(queues: Sequence[str]) -> Steps[list[Held]]:
    """Read what the streams of these queues hold, by stream and batch."""
    now = yield ops.server_time()
    found = yield from consuming(queues)
    held = [_held(one, match, now) for one in found if (match := _CONSUMER.fullmatch(one.consumer))]
    for place, one in enumerate(held):
        counts = yield one.claims.counts(one.stream, one.batch)
        held[place] = replace(one, messages=sum(counts))
    return sorted(held, key=lambda one: (one.stream, one.batch, one.home))


def _held(one: Consuming, name: re.Match[str], now: int) -> Held:
    def since(ms: int | None, sign: int = 1) -> float | None:
        return None if ms is None else max(0, sign * (now - ms)) / 1000

    driver = f"{one.process.host}:{one.process.pid}" if one.process else ""
    left = since(one.lease_ends, -1)
    facts = (one.queue, one.home, one.consumer, one.processing, driver, since(one.beat), left)
    return Held(name[1], int(name[2]), *facts)


def release(held: Sequence[Held], stream: str, force: bool) -> Steps[int]:
    """End the leases of a stream, so that a monitor returns its messages; return how many these are.

    Raises InvalidSetting for a stream that holds nothing or, without `force`, whose driver may live.
    """
    its = [one for one in held if one.stream == stream]
    if not its:
        raise InvalidSetting(f"stream {stream!r} holds nothing: `reliq spark claims` lists what streams hold")
    if any(one.may_live for one in its) and not force:
        raise InvalidSetting(
            f"the driver of stream {stream} has missed no renewal of its lease and may live, or go on: what is "
            "released comes again in a later batch, also of this query. --force releases it nevertheless"
        )
    for one in its:
        yield from one.claims.release(one.consumer)
    return sum(one.messages for one in its)


def add_to(commands: Any) -> None:
    """Add the command to a parser's subparsers."""
    one = command(commands, "claims", claims, "list the micro-batches that streams hold, or release those of one")
    one.add_argument("--queue", metavar="NAME", help="list only those of this queue")
    one.add_argument("--release", metavar="STREAM", help="the stream whose messages a monitor is to return")
    one.add_argument("--force", action="store_true", help="release it even if its driver may still run")
    one.add_argument("--url", metavar="URL", help="the Redis server (default: RELIQ_URL)")
    one.add_argument("--json", action="store_true", help="print JSON, for programs")


def claims(options: argparse.Namespace) -> int:
    """List, or release."""
    store = Store(url_from_environment(options.url), allow_eviction=eviction_allowed(None))
    try:
        queues = store.run(every_queue())
        if options.queue is not None and check_name(options.queue) not in queues:
            raise ReliqError(f"there is no queue {options.queue!r}")
        held = store.run(read_held(queues if options.queue is None else [options.queue]))
        if options.release is None:
            return _show(options, held)
        messages = store.run(release(held, options.release, options.force))
    finally:
        store.close()
    text = f"{messages} messages of stream {options.release} go back with the next look of a monitor"
    return say(options, text, stream=options.release, released=messages)


def _show(options: argparse.Namespace, held: Sequence[Held]) -> int:
    names = ("stream", "batch", "queue", "home", "messages", "driver", "renewed", "left", "may_live")
    if options.json:
        return say(options, "", claims=[{name: getattr(one, name) for name in names} for one in held])
    for one in held:
        state = "may live" if one.may_live else "has missed a renewal"
        driver = f"{one.driver} {state} (renewed {_seconds(one.renewed)} ago, {_seconds(one.left)} left)"
        print(f"{one.stream} batch {one.batch} of {one.home}: {one.messages} messages; driver {driver}")
    if not held:
        print("no stream holds messages", file=sys.stderr)
    return 0


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f} s"
