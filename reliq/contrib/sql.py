"""Messages and database changes in one transaction, through SQLAlchemy Core: SQLite and PostgreSQL.

`once` makes a handler's work happen once: its row and the work commit together. `enqueue` writes a message as a row
together with the business data; `relay` sends the rows. Killed at any point, the relay loses no row and sends none
twice. A row that its queue will never accept is parked with the reason: `list_parked`, `retry_parked`, `outbox_counts`.
"""

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, takewhile
from typing import Any, Unpack

try:
    from sqlalchemy import (
        BigInteger,
        Column,
        Connection,
        Engine,
        Float,
        Integer,
        LargeBinary,
        MetaData,
        Row,
        String,
        Table,
        Text,
        delete,
        func,
        inspect,
        select,
        text,
    )
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.schema import CreateColumn
except ImportError as error:
    from reliq.extras import missing_extra

    raise missing_extra("reliq.contrib.sql", "sql", error) from None

from reliq import Message, NewMessage, Reliq, ReliqError
from reliq.contract.keywords import PublishOptions
from reliq.contract.options import OUTBOX
from reliq.contract.values import MAX_BATCH, Duration, Size, cut, seconds
from reliq.errors import InvalidMessage, InvalidName, InvalidSetting, QueueFull
from reliq.model.keys import check_name
from reliq.model.outgoing import Body, check_option_names
from reliq.model.upgrades import VERSION_HEADER
from reliq.protocol.application import body_limit
from reliq.protocol.batch import checked
from reliq.runtime.logging import one_line
from reliq.runtime.outage_log import OutageLog

log = logging.getLogger("reliq.sql")

metadata = MetaData()

handled = Table(
    "reliq_handled",
    metadata,
    Column("queue", String(128), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("at", BigInteger, nullable=False),  # ms since the epoch
)


def _of_message(identity: Column[str]) -> list[Column[Any]]:
    """Return the columns of a message, with this one for its id."""
    return [
        Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        identity,
        Column("queue", String(128), nullable=False),
        Column("headers", Text, nullable=False),
        Column("delay", Float, nullable=False),
        Column("options", Text),  # JSON: the other options that are set; null in rows of programs that have none
        Column("body", LargeBinary, nullable=False),
    ]


outbox = Table("reliq_outbox", metadata, *_of_message(Column("id", String(128), nullable=False, unique=True)))

#: Rows that the relay removed from the outbox because their queue will never accept them unchanged.
parked = Table(
    "reliq_outbox_parked",
    metadata,
    *_of_message(Column("id", String(128), nullable=False)),
    Column("reason", Text, nullable=False),
    Column("at", BigInteger, nullable=False),  # ms since the epoch
)

#: How long Redis remembers a sent row, in case the relay dies before it deletes the row.
_REMEMBERED = "7d"
_PIECE_BYTES = 16 * 1024 * 1024  #: of bodies in one call to Redis, or one body that is larger
_REASON_LARGEST = 1000  #: bytes
_COLUMNS = frozenset(("id", "headers", "delay"))  #: options of a message that have a column of their own
_DUE = "due"  #: in the column `options`: the ms since the epoch before which a message does not run


def create_tables(connection: Connection | Engine) -> None:
    """Create what is missing: tables, and columns that earlier versions had not; with migrations, use `metadata`."""
    metadata.create_all(connection)
    with connection.begin() if isinstance(connection, Engine) else nullcontext(connection) as opened:
        _add_columns(opened)


def _add_columns(connection: Connection) -> None:
    known = inspect(connection)
    for table in (outbox, parked):
        there = {column["name"] for column in known.get_columns(table.name)}
        for column in table.columns:
            if column.name not in there:
                declared = CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {declared}"))


def once(connection: Connection, message: Message) -> bool:
    """Write a row for the message in the caller's transaction; return whether the message is new.

    False: a committed transaction has handled the message; do nothing and return. A second worker with the same message
    waits until the transaction of the first one is over.
    """
    return _insert_new(connection, handled, {"queue": message.queue, "id": message.id, "at": _now_ms()})


def _insert_new(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert the row unless its key is in the table; return whether it was inserted."""
    insert: Any
    match connection.dialect.name:
        case "postgresql":
            insert = postgresql.insert(table)
        case "sqlite":
            insert = sqlite.insert(table)
        case other:
            raise InvalidSetting(f"the database is {other}: reliq.contrib.sql knows postgresql and sqlite")
    # RETURNING, because not every driver counts the rows of an insert.
    written = connection.execute(insert.values(row).on_conflict_do_nothing().returning(table.c.id))
    return written.first() is not None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def forget(connection: Connection, older_than: Duration) -> int:
    """Delete the rows of messages handled before that time; return how many. Such a message would run again."""
    oldest = _now_ms() - round(seconds(older_than, "older_than") * 1000)
    return connection.execute(delete(handled).where(handled.c.at < oldest)).rowcount


def enqueue(
    connection: Connection,
    queue: str,
    body: Body,
    *,
    max_body: Size | None = None,
    **options: Unpack[PublishOptions],
) -> str:
    """Write a message into the outbox in the caller's transaction; return its id. `relay` sends it afterwards.

    The other options are those of PublishOptions: `delay` and `ttl` count from the sending, and a row needs no
    deduplication key, for it is sent once by its id. `max_body`: that of the Reliq with which the relay sends; default
    as there. Refuses what `send` would refuse: raises InvalidMessage, InvalidName, TypeError.
    """
    check_option_names(options, PublishOptions)
    row = row_of(check_name(queue), checked(NewMessage(body, **options), body_limit(max_body)))
    connection.execute(outbox.insert().values(row))
    return str(row["id"])


def row_of(queue: str, message: NewMessage, due: datetime | None = None) -> dict[str, Any]:
    """Return the row of a message in the outbox; with `due` it does not run before, whenever the row is sent."""
    options = {name: value for name, value in message.options(OUTBOX).items() if name not in _COLUMNS}
    if due is not None:
        options[_DUE] = round(due.timestamp() * 1000)
    return {
        "id": message.id, "queue": queue, "headers": json.dumps(message.headers), "delay": message.delay,
        "options": json.dumps(options) if options else None, "body": message.body,
    }  # fmt: skip


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
            outage.failed(error if isinstance(error, ReliqError) else ReliqError(type(error).__name__))
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
            by_queue: dict[str, list[Row[Any]]] = defaultdict(list)
            for row in rows:
                by_queue[row.queue].append(row)
            for queue, of_queue in by_queue.items():
                try:
                    self._send(queue, of_queue)
                except ReliqError as error:
                    self._refused[queue] = error
                except SQLAlchemyError as error:
                    self._refused[queue] = ReliqError(f"queue {queue!r}: the database fails: {type(error).__name__}")

    def raise_refusal(self) -> None:
        """Raise the first refusal, which names its queue, if there was one."""
        for error in self._refused.values():
            others = len(self._refused) - 1
            if others:
                error.args = (f"{error}; {others} more queues refuse",)
            raise error

    def _oldest(self, limit: int) -> Sequence[Row[Any]]:
        rows = select(outbox).where(outbox.c.queue.not_in(list(self._refused))).order_by(outbox.c.number).limit(limit)
        with self._engine.connect() as connection:
            return connection.execute(rows).all()

    def _send(self, queue: str, rows: Sequence[Row[Any]]) -> None:
        """Send the rows of one queue in order; of a queue that is nearly full, as many as fit."""
        waiting = self._readable(rows)
        most = len(waiting)
        while waiting:
            piece = waiting[: min(most, _within(_PIECE_BYTES, waiting))]
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
        """Return the rows with their messages; parks invalid messages and those too large for this application."""
        readable = []
        for row in rows:
            try:
                message = checked(_message(row), self._app.max_body)
                if row.queue in self._app.handlers.versions:  # another program wrote the row, maybe an earlier one
                    message.headers.setdefault(VERSION_HEADER, "1")
                readable.append((row, message))
            except (ReliqError, ValueError, TypeError) as error:
                self._park([(row, str(error))])
        return readable

    def _park_unless_it_may_fit(self, queue: str, row: Row[Any], message: NewMessage, refusal: QueueFull) -> None:
        """Park a message that is larger than its queue's max_bytes; raises the refusal for any other."""
        max_bytes = self._app.queue(queue).config().max_bytes
        size = len(message.element(0))
        if max_bytes is None or size <= max_bytes:
            raise refusal
        self._park([(row, f"the message has {size} bytes, its queue may have {max_bytes} (max_bytes)")])

    def _settle(self, piece: Sequence[tuple[Row[Any], NewMessage]]) -> None:
        """Delete sent rows from the outbox."""
        reason = f"within {_REMEMBERED} a message with this id and another body was sent: this one was not"
        _delete(self._engine, [row for row, message in piece if not message.conflict])
        conflicts = [(row, reason) for row, message in piece if message.conflict]
        self.sent += len(piece) - len(conflicts)
        self._park(conflicts)

    def _park(self, rows: Sequence[tuple[Row[Any], str]]) -> None:
        """Park rows one by one. A refusal of the database (the table is missing) does not hold up other rows."""
        for row, why in rows:
            reason = cut(one_line(why), _REASON_LARGEST)
            log.error("outbox: parks queue=%s id=%s: %s", row.queue, row.id, reason)
            try:
                _move_aside(self._engine, row, reason)
                self.parked += 1
            except SQLAlchemyError as error:
                cause = f"queue {row.queue!r}: message {row.id} cannot be parked: {type(error).__name__}"
                self._refused[row.queue] = ReliqError(f"{cause}; run create_tables")


_FIELDS = tuple(one.name for one in outbox.columns if one.name != "number")


def _within(most: int, waiting: Sequence[tuple[Row[Any], NewMessage]]) -> int:
    """Return how many of the first messages have at most `most` bytes together; at least one."""
    sizes = accumulate(len(message.body) for _, message in waiting)
    return max(1, sum(1 for _ in takewhile(lambda size: size <= most, sizes)))


def _message(row: Row[Any]) -> NewMessage:
    options = json.loads(row.options or "{}")
    due = options.pop(_DUE, None)
    return NewMessage(
        bytes(row.body), id=row.id, headers=json.loads(row.headers),
        delay=row.delay if due is None else max(0.0, (due - _now_ms()) / 1000),
        dedup_key=f"outbox:{row.id}", window=_REMEMBERED, **options,
    )  # fmt: skip


def _delete(engine: Engine, rows: Sequence[Row[Any]]) -> None:
    with engine.begin() as connection:
        connection.execute(delete(outbox).where(outbox.c.number.in_([row.number for row in rows])))


def _move_aside(engine: Engine, row: Row[Any], reason: str) -> None:
    """Move a row from the outbox to the parked rows, unless another relay has removed it."""
    with engine.begin() as connection:
        if connection.execute(delete(outbox).where(outbox.c.number == row.number)).rowcount:
            fields = {name: getattr(row, name) for name in _FIELDS}
            connection.execute(parked.insert().values(**fields, reason=reason, at=_now_ms()))


@dataclass(frozen=True, slots=True)
class Parked:
    """A row of the outbox that its queue did not accept."""

    id: str
    queue: str
    reason: str
    parked_at: int  #: ms since the epoch


@dataclass(frozen=True, slots=True)
class OutboxCounts:
    """The numbers of waiting and parked rows of one queue."""

    waiting: int = 0
    parked: int = 0


def outbox_counts(connection: Connection) -> dict[str, OutboxCounts]:
    """Count the waiting and the parked rows by queue, for a metric and an alert on `parked`."""

    def count(table: Table) -> dict[str, int]:
        rows = connection.execute(select(table.c.queue, func.count()).group_by(table.c.queue))
        return {row[0]: row[1] for row in rows}

    waiting, aside = count(outbox), count(parked)
    return {queue: OutboxCounts(waiting.get(queue, 0), aside.get(queue, 0)) for queue in sorted({*waiting, *aside})}


def list_parked(connection: Connection, queue: str | None = None, limit: int = 100) -> list[Parked]:
    """Read the parked rows of all queues or of one, oldest first."""
    wanted = select(parked.c.id, parked.c.queue, parked.c.reason, parked.c.at).order_by(parked.c.number).limit(limit)
    if queue is not None:
        wanted = wanted.where(parked.c.queue == queue)
    return [Parked(*row) for row in connection.execute(wanted)]


def retry_parked(connection: Connection, queue: str | None = None, ids: Sequence[str] | None = None) -> int:
    """Put parked rows back at the end of the outbox after their cause is fixed; return how many.

    Of all queues or of one; all rows or those with these ids. A row stays parked if its id waits in the outbox.
    """
    wanted = select(parked).order_by(parked.c.number).with_for_update(skip_locked=True)
    if queue is not None:
        wanted = wanted.where(parked.c.queue == queue)
    if ids is not None:
        wanted = wanted.where(parked.c.id.in_(ids))
    back = 0
    for row in connection.execute(wanted).all():
        if _insert_new(connection, outbox, {name: getattr(row, name) for name in _FIELDS}):
            connection.execute(delete(parked).where(parked.c.number == row.number))
            back += 1
    return back
