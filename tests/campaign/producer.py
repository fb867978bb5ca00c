"""The producers of a campaign: they send, cancel and repeat, and note what they were answered."""

import random
import time
from collections.abc import Sequence
from typing import Protocol

from reliq.client.app import Reliq
from reliq.errors import OutcomeUnknown, ReliqError
from reliq.model.outgoing import NewMessage
from tests.campaign.history import History
from tests.campaign.tasks import QUEUE, Outgoing, Source

_PAUSE_AFTER_FAILURE = 0.05


class Sender(Protocol):
    """A way to send messages; raises ReliqError as `Queue.send_many` does."""

    def send(self, messages: Sequence[Outgoing]) -> list[str]: ...

    def cancel(self, identity: str) -> str: ...


class DirectSender:
    """Sends with the library."""

    def __init__(self, url: str, durability: str | None, send_timeout: float) -> None:
        self._queue = Reliq(url, send_timeout=send_timeout).queue(QUEUE)
        self._durability = durability

    def send(self, messages: Sequence[Outgoing]) -> list[str]:
        new = [
            NewMessage(one.body, key=one.key or None, delay=one.delay, dedup_key=one.dedup_key or None)
            for one in messages
        ]
        if len(new) == 1:
            return [self._queue.send(new[0], durability=self._durability)]
        return self._queue.send_many(new, durability=self._durability)

    def cancel(self, identity: str) -> str:
        return str(self._queue.cancel(identity))


class Producer:
    """Sends the messages of a source, at most `rate` a second (0: as fast as it can), in calls of up to `batch`."""

    def __init__(self, sender: Sender, source: Source, history: History, seed: int, rate: float, batch: int) -> None:
        self._sender = sender
        self._source = source
        self._history = history
        self._random = random.Random(f"{seed} calls {history.process}")
        self._rate = rate
        self._batch = batch
        self.stopping = False
        self.sent = 0

    def run(self, count: int) -> None:
        """Send so many messages; 0: until it is stopped."""
        began = time.monotonic()
        while not self.stopping and (count == 0 or self.sent < count):
            most = self._batch if count == 0 else min(self._batch, count - self.sent)
            messages = [self._source.next() for _ in range(self._random.randint(1, most))]
            self.sent += len(messages)
            ids = self._send(messages)
            self._follow(messages, ids)
            if self._rate:
                time.sleep(max(0.0, began + self.sent / self._rate - time.monotonic()))

    def _follow(self, messages: Sequence[Outgoing], ids: Sequence[str | None]) -> None:
        """Cancel what is to be cancelled, and send again what has a deduplication key."""
        for message, identity in zip(messages, ids, strict=True):
            if message.kind == "cancelled" and identity is not None:
                self._cancel(identity)
            if message.kind == "deduplicated":
                self._send([message])

    def _send(self, messages: Sequence[Outgoing]) -> list[str | None]:
        call = self._history.invoke("send", messages=[one.noted for one in messages])
        try:
            ids = self._sender.send(messages)
        except OutcomeUnknown as error:
            call.ends("unknown", error=type(error).__name__, text=str(error), ids=error.ids)
        except ReliqError as error:
            call.ends("fail", error=type(error).__name__, text=str(error))
        else:
            call.ends("ok", ids=ids)
            return list(ids)
        time.sleep(_PAUSE_AFTER_FAILURE)
        return [None] * len(messages)

    def _cancel(self, identity: str) -> None:
        call = self._history.invoke("cancel", id=identity)
        try:
            answer = self._sender.cancel(identity)
        except OutcomeUnknown as error:
            call.ends("unknown", error=type(error).__name__)
        except ReliqError as error:
            call.ends("fail", error=type(error).__name__)
        else:
            call.ends("ok", answer=answer)
