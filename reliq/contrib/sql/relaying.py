"""The relay: sends the rows of the outbox and deletes them."""

import logging
import threading
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import Any

from sqlalchemy import Engine, Row, cast, func, select, type_coerce
from sqlalchemy.exc import SQLAlchemyError

from reliq import NewMessage, Reliq, ReliqError
from reliq.contract.values import MAX_BATCH, Duration, cut, seconds
from reliq.contrib.sql.causes import cause_of
from reliq.contrib.sql.parking import are, move_aside, removal
from reliq.contrib.sql.rows import REMEMBERED, message_of
from reliq.contrib.sql.tables import TEXT, among, outbox
from reliq.errors import InvalidMessage, InvalidName, QueueFull
from reliq.model.outgoing import too_large
from reliq.model.upgrades import VERSION_HEADER
from reliq.protocol.batch import checked
from reliq.protocol.policy import most_bytes
from reliq.runtime.logging import one_line
from reliq.runtime.outage_log import OutageLog
from reliq.runtime.pieces import grouped

log = logging.getLogger("reliq.sql")

_PIECE_BYTES = 16 * 1024 * 1024  #: of bodies in memory and in one call to Redis, or one body that is larger
_REASON_LARGEST = 1000  #: bytes
#: A body as bytes, though another program may have stored it as a text or a number in SQLite.
_BODY = cast(outbox.c.body, outbox.c.body.type).label("body")
#: Any text that SQLite has in place of the number comes as such.
_DELAY = type_coerce(outbox.c.delay, TEXT).label("delay")
_READ = {"body": _BODY, "delay": _DELAY}
_COLUMNS = [_READ.get(one.name, one) for one in outbox.columns]
#: What is read of many rows at once. In SQLite the size of a text is that in characters.
_HEAD = [outbox.c.number, outbox.c.id, outbox.c.queue, func.length(outbox.c.body).label("size")]


def relay(engine: Engine, app: Reliq, stopping: threading.Event, pause: Duration = 0.5) -> None:
    """Send the messages in the outbox until `stopping`. One process is enough; a second one does no harm."""
    wait, outage = seconds(pause, "pause", shortest=0.01), OutageLog(log, "outbox")
    while not stopping.is_set():
        one_pass = _Pass(engine, app)
        try:
            one_pass.run(MAX_BATCH)
            one_pass.raise_refusal()
            outage.over()
        except (ReliqError, SQLAlchemyError) as error:
            outage.failed(ReliqError(cause_of(error)) if isinstance(error, SQLAlchemyError) else error)
        if one_pass.done < MAX_BATCH:
            stopping.wait(wait)


def relay_once(engine: Engine, app: Reliq, limit: int = MAX_BATCH) -> int:
    """Send up to `limit` rows, oldest first, and delete them; return how many.

    A row is sent with its id as deduplication key, so sending it again does not enqueue a second message. A queue that
    refuses temporarily (QueueFull: it gets as many as fit) does not hold up the others; its error is raised at the end.
    A row that its queue will never accept is parked.
    """
    one_pass = _Pass(engine, app)
    one_pass.run(limit)
    one_pass.raise_refusal()
    return one_pass.sent


class _Pass:
    """One pass over the outbox: how many rows were sent and parked, and which queues refused temporarily."""

    def __init__(self, engine: Engine, app: Reliq) -> None:
        self._engine = engine
        self._app = app
        self._refused: dict[str, ReliqError] = {}
        self.sent = 0
        self.parked = 0

    @property
    def done(self) -> int:
        """The number of rows that left the outbox."""
        return self.sent + self.parked

    def run(self, limit: int) -> None:
        """Send or park up to `limit` rows; the queues that refuse are left out from then on."""
        while self.done < limit and (rows := self._oldest(limit - self.done)):
            for queue, of_queue in grouped((row.queue, row) for row in rows).items():
                try:
                    self._send(queue, of_queue)
                except ReliqError as error:
                    self._refused[queue] = error
                except SQLAlchemyError as error:
                    self._refused[queue] = ReliqError(f"queue {queue!r}: the database fails: {cause_of(error)}")

    def raise_refusal(self) -> None:
        """Raise the first refusal, which names its queue, if there was one."""
        for error in self._refused.values():
            others = len(self._refused) - 1
            if others:
                error.args = (f"{error}; {others} more queues refuse",)
            raise error

    def _oldest(self, limit: int) -> Sequence[Row[Any]]:
        """Return the oldest rows, each as its number, id, queue and the size of its body."""
        heads = select(*_HEAD).where(~among(outbox.c.queue, list(self._refused)))
        with self._engine.connect() as connection:
            return connection.execute(heads.order_by(outbox.c.number).limit(limit)).all()

    def _whole(self, heads: Sequence[Row[Any]]) -> Sequence[Row[Any]]:
        """Return these rows with their bodies, but for those that another relay has removed."""
        rows = select(*_COLUMNS).where(are(heads)).order_by(outbox.c.number)
        with self._engine.connect() as connection:
            return connection.execute(rows).all()

    def _send(self, queue: str, heads: Sequence[Row[Any]]) -> None:
        """Send the rows of one queue in order, and park those that are too large for this application."""
        most = self._app.max_body
        self._park([(head, too_large(head.size, most)) for head in heads if head.size > most])
        heads = [head for head in heads if head.size <= most]
        while heads:
            count = _within(_PIECE_BYTES, heads)
            self._send_piece(queue, self._readable(self._whole(heads[:count])))
            heads = heads[count:]

    def _send_piece(self, queue: str, waiting: list[tuple[Row[Any], NewMessage]]) -> None:
        """Send the messages of one call in order; if the queue is nearly full, as many as fit."""
        most = len(waiting)
        while waiting:
            piece = waiting[:most]
            try:
                self._app.queue(queue).send_many([message for _, message in piece])
            except InvalidName as error:
                self._park([(row, str(error)) for row, _ in waiting])
                return
            except InvalidMessage as error:
                row, _ = waiting.pop(error.index or 0)
                self._park([(row, str(error))])
            except QueueFull as error:
                most = len(piece) // 2
                if not most:
                    self._park_unless_it_may_fit(queue, *waiting.pop(0), error)
                    most = 1
            else:
                self._settle(piece)
                del waiting[: len(piece)]

    def _readable(self, rows: Sequence[Row[Any]]) -> list[tuple[Row[Any], NewMessage]]:
        """Return the rows with their messages; parks what is no valid message."""
        readable = []
        for row in rows:
            try:
                message = checked(message_of(row), self._app.max_body)
                if row.queue in self._app.handlers.versions:  # another program wrote the row, maybe an earlier one
                    message.headers.setdefault(VERSION_HEADER, "1")
                readable.append((row, message))
            except ReliqError as error:
                self._park([(row, str(error))])
        return readable

    def _park_unless_it_may_fit(self, queue: str, row: Row[Any], message: NewMessage, refusal: QueueFull) -> None:
        """Park a message that is larger than what its home may have of max_bytes; raises the refusal for any other."""
        most, size = most_bytes(self._app.queue(queue).config()), len(message.element(0))
        if most is None or size <= most:
            raise refusal
        self._park([(row, f"the message has {size} bytes, each home of its queue may have {most} (max_bytes)")])

    def _settle(self, piece: Sequence[tuple[Row[Any], NewMessage]]) -> None:
        """Delete sent rows from the outbox."""
        reason = f"within {REMEMBERED} a message with this id and another body was sent: this one was not"
        _delete(self._engine, [row for row, message in piece if not message.conflict])
        conflicts = [(row, reason) for row, message in piece if message.conflict]
        self.sent += len(piece) - len(conflicts)
        self._park(conflicts)

    def _park(self, rows: Sequence[tuple[Row[Any], str]]) -> None:
        """Park rows one by one. A refusal of the database (the table is missing) does not hold up other rows."""
        for row, why in rows:
            reason = cut(one_line(why), _REASON_LARGEST)
            try:
                move_aside(self._engine, row, reason)
            except SQLAlchemyError as error:
                refusal = f"message {one_line(row.id)} cannot be parked ({reason}): {cause_of(error)}"
                self._refused.setdefault(row.queue, ReliqError(f"queue {row.queue!r}: {refusal}"))
            else:
                self.parked += 1
                log.error("outbox: parks queue=%s id=%s: %s", one_line(row.queue), one_line(row.id), reason)


def _within(most: int, heads: Sequence[Row[Any]]) -> int:
    """Return how many of the first rows have bodies of at most `most` bytes together; at least one."""
    sizes = accumulate(head.size for head in heads)
    return max(1, sum(1 for _ in takewhile(lambda size: size <= most, sizes)))


def _delete(engine: Engine, rows: Sequence[Row[Any]]) -> None:
    with engine.begin() as connection:
        connection.execute(removal(rows))
