"""The queues of the endpoint: made, found, changed, listed and deleted in Redis, and remembered for a second."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from reliq import aio
from reliq.model.keys import QueueKeys, is_name
from reliq.ops import Steps, Transaction, Watch, announce, is_queue, one, server_time
from reliq.ops import sqs as ops
from reliq.protocol.deletion import announce_if_used, delete
from reliq.runtime.pieces import pieces
from reliq_api.background import Background
from reliq_sqs import known
from reliq_sqs.errors import SqsError, no_queue
from reliq_sqs.ids import Ids
from reliq_sqs.known import ATTRIBUTE, CREATED, MODIFIED, SqsQueue
from reliq_sqs.names import Names, Place

_REMEMBERED = 1.0  #: seconds for which a process uses what it has read; AWS takes up to 60 for a change of attributes
_REMEMBERED_MOST = 10_000
_AT_ONCE = 100  #: queues that are read in one call
_DELETED_FOR = 60.0  #: seconds for which the name of a deleted queue is not used again, with strict timing

Record = dict[str, str]
#: Makes the fields to set, and those to remove, from what a queue has; raises SqsError.
Edit = Callable[[SqsQueue], tuple[Mapping[str, str], Sequence[str]]]


class Registry:
    """The queues that the endpoint serves."""

    def __init__(self, app: aio.Reliq, names: Names, strict: bool, background: Background) -> None:
        self.names = names
        self._background = background
        self.ids = Ids()  #: of messages
        self._app = app
        self._strict = strict
        self._seen: dict[str, tuple[SqsQueue, float]] = {}

    def handle(self, queue: SqsQueue) -> aio.Queue:
        """Return reliq's queue."""
        return self._app.queue(queue.queue)

    async def find(self, place: Place) -> SqsQueue | None:
        """Return a queue, as it was at most a second ago; None if there is none."""
        return self.seen(self.names.queue(place)) or await self.look(place)

    def seen(self, queue: str) -> SqsQueue | None:
        """Return a queue that was read less than a second ago, by reliq's name."""
        seen = self._seen.get(queue)
        return seen[0] if seen is not None and time.monotonic() < seen[1] else None

    async def look(self, place: Place) -> SqsQueue | None:
        """Return a queue as it is now."""
        name = self.names.queue(place)
        if not is_name(name):
            return None
        asked = self.ids.now()
        record, now = await self._app.store.run(_read(name))
        self.ids.follow(now, asked)
        if record is None:
            self._seen.pop(name, None)
            return None
        return self._remember(known.read(record, place, self.names))

    async def get(self, place: Place) -> SqsQueue:
        """Return a queue; raises SqsError if there is none."""
        found = await self.find(place)
        if found is None:
            raise no_queue()
        return found

    def forget(self, queue: SqsQueue) -> None:
        """Read a queue anew when it is needed next."""
        self._seen.pop(queue.queue, None)

    def _remember(self, found: SqsQueue) -> SqsQueue:
        if len(self._seen) >= _REMEMBERED_MOST:
            self._seen.clear()
        self._seen[found.queue] = found, time.monotonic() + _REMEMBERED
        return found

    async def create(self, place: Place, attributes: Mapping[str, str], tags: Mapping[str, str]) -> SqsQueue:
        """Make a queue, or return the one that is there; its attributes may differ from those given."""
        name = self.names.queue(place)
        if self._strict and await self._app.store.run(one(ops.sqs_deleted(name))):
            raise SqsError(
                "QueueDeletedRecently",
                "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
            )
        fields = {
            **{ATTRIBUTE + key: value for key, value in attributes.items() if value},
            **{known.TAG + key: value for key, value in tags.items()},
        }
        record = await self._app.store.run(_create(name, fields))
        return self._remember(known.read(record, place, self.names))

    async def change(self, queue: SqsQueue, edit: Edit) -> SqsQueue:
        """Change what is known of a queue, from what it is now; raises SqsError if it is gone."""
        record = await self._app.store.run(_change(queue, self.names, edit))
        return self._remember(known.read(record, queue.place, self.names))

    async def change_delay(self, queue: SqsQueue) -> None:
        """Let all delayed messages have the delay of their queue: also those that other endpoints accept meanwhile."""
        await self.handle(queue).change_delay(queue.delay)
        self._background.start("messages with a former delay", partial(self._change_delay_again, queue))

    async def _change_delay_again(self, queue: SqsQueue) -> None:
        await asyncio.sleep(2 * _REMEMBERED)
        if now := await self.look(queue.place):
            await self.handle(now).change_delay(now.delay)

    async def delete(self, queue: SqsQueue) -> None:
        """Delete a queue with all that it has."""
        if self._strict:
            await self._app.store.run(one(ops.note_sqs_deletion(queue.queue, _DELETED_FOR)))
        await self._app.store.run(delete(queue.queue, force=True))
        self.forget(queue)
        self._background.start("messages for a deleted queue", partial(self._list_anew, queue.queue))

    async def _list_anew(self, name: str) -> None:
        """Make a deleted queue known again if another endpoint, which remembered it, has accepted a message."""
        await asyncio.sleep(2 * _REMEMBERED)
        await self._app.store.run(announce_if_used(QueueKeys(name)))

    async def places(self, region: str) -> list[Place]:
        """Return all queues of a region, by name."""
        found = (self.names.of_queue(queue) for queue in await self._app.queues())
        return sorted((one for one in found if one and one.region == region), key=lambda one: one.name)

    async def sources(self, target: SqsQueue) -> list[Place]:
        """Return the queues of the region whose dead letters go to this one, by name."""
        places = await self.places(target.place.region)
        found: list[Place] = []
        for part in pieces(places, _AT_ONCE):
            queues = await asyncio.gather(*(self.look(place) for place in part))
            found += [one.place for one in queues if one and one.redrive and one.redrive.target == target.place]
        return found


def _read(name: str) -> Steps[tuple[Record | None, int]]:
    """Return what is known of a queue, None if there is no such queue, and the ms of the server's clock."""
    now = yield server_time()
    record, there = yield [ops.sqs_record(QueueKeys(name)), is_queue(name)]
    return record if there or CREATED in record else None, now


def _create(name: str, fields: Mapping[str, str]) -> Steps[Record]:
    """Store the first record of a queue and return it, or the one that another caller has stored."""
    keys = QueueKeys(name)
    while True:
        now = str((yield server_time()) // 1000)
        record = (yield Watch((keys.sqs,), (ops.sqs_record(keys),)))[0]
        if CREATED in record:
            yield Transaction(())
            yield announce(name)  # its maker may have been killed before
            return dict(record)
        fields = {**fields, CREATED: now, MODIFIED: now}
        if (yield Transaction(tuple(ops.change_sqs_record(keys, fields)))) is not None:
            yield announce(name)
            return dict(fields)


def _change(queue: SqsQueue, names: Names, edit: Edit) -> Steps[Record]:
    keys = QueueKeys(queue.queue)
    while True:
        now = str((yield server_time()) // 1000)
        there = yield is_queue(queue.queue)
        record: Record = (yield Watch((keys.sqs,), (ops.sqs_record(keys),)))[0]
        try:
            if not there and CREATED not in record:
                raise no_queue()
            to_set, to_remove = edit(known.read(record, queue.place, names))
        except SqsError:
            yield Transaction(())
            raise
        to_set = {CREATED: record.get(CREATED, now), MODIFIED: record.get(MODIFIED, now), **to_set}
        if (yield Transaction(tuple(ops.change_sqs_record(keys, to_set, to_remove)))) is not None:
            return {name: value for name, value in {**record, **to_set}.items() if name not in to_remove}
