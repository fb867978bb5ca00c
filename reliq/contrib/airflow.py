"""Messages of a queue trigger DAGs of Airflow, through `apache-airflow-providers-common-messaging`.

    trigger = MessageQueueTrigger(scheme="reliq", queue_name="orders")
    asset = Asset("orders", watchers=[AssetWatcher("orders", trigger=trigger)])

A message is acked after Airflow has stored the events of all its triggers (Airflow 3.3 or later: shared streams). If
that fails, or the triggerer dies before, the message comes back.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

try:
    from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider
    from airflow.triggers.base import BaseEventTrigger, TriggerEvent
    from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer
except ImportError as error:
    from reliq.extras import missing_extra

    raise missing_extra("reliq.contrib.airflow", "airflow", error) from None

from reliq import Message
from reliq.aio import Reliq
from reliq.aio.consumer import Consumer
from reliq.contract import values
from reliq.errors import InvalidMessage, LeaseLost, OutcomeUnknown, RedisUnavailable, RedisUnsuitable
from reliq.runtime.outage_log import OutageLog

log = logging.getLogger("reliq.airflow")

_SCHEME = "reliq"
_URL = "env:RELIQ_URL"  #: a reference: what Airflow stores of a trigger has no password
_WAIT = 30.0  #: seconds of one claim


class ReliqMessageQueueProvider(BaseMessageQueueProvider):
    """The scheme `reliq`, and queues named `reliq://queue`."""

    scheme = _SCHEME

    def queue_matches(self, queue: str) -> bool:
        return queue.startswith(f"{_SCHEME}://")

    def trigger_class(self) -> "type[ReliqTrigger]":
        return ReliqTrigger

    def trigger_kwargs(self, queue: str, **_: Any) -> dict[str, Any]:
        return {"queue_name": queue.removeprefix(f"{_SCHEME}://")}


class ReliqTrigger(BaseEventTrigger):
    """Fires for each message of a queue, with its `id`, `queue`, `headers` and `body` (JSON, else text).

    `url`: Redis, or a reference to it, env:NAME or file:/path, which the triggerer resolves. `lease`: how long a
    triggerer may be silent before its messages come back. Triggers of one queue share its messages: each message fires
    all of them.
    """

    def __init__(self, queue_name: str, url: str = _URL, lease: float = values.LEASE, **options: Any) -> None:
        super().__init__(**options)
        self.queue_name = queue_name
        self.url = url
        self.lease = lease

    def serialize(self) -> tuple[str, dict[str, Any]]:
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        return name, {"queue_name": self.queue_name, "url": self.url, "lease": self.lease}

    def shared_stream_key(self) -> tuple[str, str, str]:
        return _SCHEME, self.url, self.queue_name

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> "Messages":
        return Messages(kwargs["queue_name"], kwargs.get("url", _URL), kwargs.get("lease", values.LEASE))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[dict[str, Any]]) -> AsyncIterator[TriggerEvent]:
        async for event in shared_stream:
            yield TriggerEvent(event)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Fire without a shared stream: a message is acked when the triggerer asks for the next one."""
        messages = self.create_shared_stream_producer(self.serialize()[1])
        try:
            async for event, message in messages.open_stream():
                yield TriggerEvent(event)
                await messages.ack(message)
        finally:
            await messages.aclose()


class Messages(SharedStreamProducer):
    """The messages of a queue, held under a renewed lease until Airflow has stored what they have triggered."""

    def __init__(self, queue_name: str, url: str, lease: float) -> None:
        self._queue_name = queue_name
        self._url = url
        self._lease = lease
        self._open = AsyncExitStack()
        self._consumer: Consumer | None = None
        self._ended = False
        self._claiming = OutageLog(log, f"claiming from {queue_name}")
        self._settling = OutageLog(log, f"settling messages of {queue_name}")

    async def open_stream(self) -> AsyncIterator[tuple[dict[str, Any], Message]]:
        app = await self._open.enter_async_context(Reliq(self._url))
        consumer = await self._open.enter_async_context(app.queue(self._queue_name).consumer(self._lease))
        self._consumer = consumer
        try:
            while True:
                for message in await self._claimed(consumer):
                    yield event_of(message), message
        finally:
            self._ended = True

    async def _claimed(self, consumer: Consumer) -> list[Message]:
        """Claim messages; none after an outage, for a stream that fails is the end of its triggers."""
        try:
            messages = await consumer.claim(wait=_WAIT)
        except RedisUnsuitable:
            raise
        except (RedisUnavailable, OutcomeUnknown) as error:
            self._claiming.failed(error)
            await asyncio.sleep(values.RECONNECT_PAUSE)
            return []
        self._claiming.over()
        return messages

    def get_advance_lane(self, broker_payload: Message) -> str:
        return broker_payload.id  # messages are settled one by one, in any order

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Ack what was stored; what a trigger refused is a dead letter, and what failed goes back."""
        for item in batch:
            if item.outcome.is_clean:
                await self.ack(item.broker_payload)
            elif item.outcome.rejected:
                await self._settle("dead", item.broker_payload, "rejected by a trigger of Airflow")
            else:
                await self._settle("release", item.broker_payload)

    async def ack(self, message: Message) -> None:
        await self._settle("ack", message)

    async def _settle(self, verb: str, message: Message, *reason: str) -> None:
        """Settle a message, again and again while Redis is away: an error would end all triggers of the queue.

        Once the stream has ended, a message that cannot be settled comes back.
        """
        while self._consumer is not None:
            try:
                await getattr(self._consumer, verb)(message, *reason)
            except LeaseLost:
                return  # it is with another triggerer by now
            except RedisUnsuitable:
                raise
            except (RedisUnavailable, OutcomeUnknown) as error:
                self._settling.failed(error)
                if self._ended:
                    return
                await asyncio.sleep(values.RECONNECT_PAUSE)
            else:
                self._settling.over()
                return

    async def aclose(self) -> None:
        """Put back what is not settled, and close the connections."""
        await self._open.aclose()


def event_of(message: Message) -> dict[str, Any]:
    """Return the payload of the event that a message fires."""
    try:
        body = message.json()
    except InvalidMessage:
        body = message.body.decode(errors="replace")
    return {"id": message.id, "queue": message.queue, "headers": dict(message.headers), "body": body}
