"""The transport that kombu calls: connections, channels, and the way messages come to an event loop."""

import contextlib
import time
from typing import Any

from kombu.transport import virtual

import reliq
from reliq import forks
from reliq.contrib.kombu.broker import Broker, broker_of
from reliq.contrib.kombu.channel import Channel
from reliq.contrib.kombu.consuming import Holder, Inbox, Settler
from reliq.contrib.kombu.options import Options, broker_url
from reliq.errors import InvalidSetting, OutcomeUnknown, QueueFull, RedisUnavailable
from reliq.runtime.url import read_url
from reliq.worker.exchange import Exchange

_TURN = 0.005  #: seconds for which messages are delivered before the event loop has its turn


class Transport(virtual.Transport):
    """kombu's transport `reliq+redis://`."""

    Channel = Channel
    can_parse_url = True
    driver_type = "redis"  # Celery allows gossip, mingle and worker_disable_prefetch for it
    driver_name = "reliq"
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )
    connection_errors = (*virtual.Transport.connection_errors, RedisUnavailable, OutcomeUnknown, OSError)
    channel_errors = (*virtual.Transport.channel_errors, QueueFull)

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.options = Options.of(client.transport_options)
        self.broker: Broker = broker_of(broker_url(client), self.options)
        self._inbox: Inbox | None = None
        self._holders: list[Holder] = []
        self._held: dict[tuple[Any, str, int | None], tuple[Holder, Exchange]] = {}  #: by channel, queue and place
        self._settler: Settler | None = None
        self._mark = forks.mark()
        self._loop: Any = None
        self._open = False

    def driver_version(self) -> str:
        return reliq.__version__

    def establish_connection(self) -> Any:
        """Check that Redis can be used; raises RedisUnavailable or RedisUnsuitable."""
        self.broker.ping()
        if not self._open:
            self._open = True
            self.broker.opened()
        return super().establish_connection()

    @property
    def is_parents(self) -> bool:
        """Whether this is a forked child, and the connection that of the process that forked it."""
        return self._mark != forks.mark()

    def close_connection(self, connection: Any) -> None:
        """Close the channels; unsettled messages go back, unless they are those of the parent process."""
        if self.is_parents:
            return
        super().close_connection(connection)
        if self._settler is not None:
            self._settler.stop()
            self._settler = None
        if self._open:
            self._open = False
            self._leave_loop()
            if self._inbox is not None:
                self._inbox.close()
                self._inbox = None
            self.broker.closed()

    # --- consumers in Redis ---

    @property
    def inbox(self) -> Inbox:
        if self._inbox is None:
            self._inbox = Inbox()
        return self._inbox

    @property
    def settler(self) -> Settler:
        if self._settler is None:
            self._settler = Settler(self.broker.store, lambda: [one for _, one in list(self._held.values())])
            self._settler.start()
        return self._settler

    def hold(self, queue: str, channel: Any, place: int | None) -> Exchange:
        """Return the channel's consumer of a queue at this place among those of it; None: the one for basic_get."""
        known = self._held.get((channel, queue, place))
        if known is None:
            holder = next((one for one in self._holders if queue not in one.exchanges), None)
            if holder is None:
                holder = Holder(self.broker.store, self.options.lease)
                self._holders.append(holder)
            self.broker.consuming(holder.owner)
            known = self._held[channel, queue, place] = holder, holder.hold(queue)
        return known[1]

    def end_holding(self, channel: Any, queue: str | None = None, place: int = 0) -> None:
        """Unregister the channel's consumer of a queue at a place, or all that it has."""
        theirs = (channel, queue, place)
        for key in [one for one in self._held if one == theirs or (queue is None and one[0] is channel)]:
            holder, exchange = self._held.pop(key)
            owner = holder.owner
            left = holder.drop(exchange.steps.keys.queue)
            self.broker.consumed(owner if left and not holder.exchanges else None)

    # --- events ---

    def drain_events(self, connection: Any, timeout: float | None = None, **_: Any) -> None:
        """Deliver one message; raises TimeoutError, which is socket.timeout, if none comes in time."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_next():
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("no message came in time")
            self.inbox.wait(left)

    def _deliver_next(self) -> bool:
        following = self.inbox.next()
        if following is None:
            return False
        subscription, message = following
        subscription.deliver(subscription, message)
        return True

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        self._leave_loop()
        self._loop = loop
        loop.add_reader(self.inbox.fileno(), self.on_readable)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        self._leave_loop()

    def _leave_loop(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(KeyError, OSError, ValueError):
                self._loop.remove(self.inbox.fileno())
            self._loop = None

    def on_readable(self, *_: Any) -> None:
        """Deliver messages for one turn of the event loop."""
        self.inbox.calm()
        until = time.monotonic() + _TURN
        try:
            while self._deliver_next() and time.monotonic() < until:
                pass
        finally:
            if len(self.inbox):  # its turn is over, or a task's callback has failed
                self.inbox.poke()

    # --- addresses ---

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return the URL that may be shown."""
        if include_password:
            return f"reliq+{uri}"
        with contextlib.suppress(InvalidSetting):
            return f"reliq+{read_url(uri).shown}"
        return "reliq+redis://..."
