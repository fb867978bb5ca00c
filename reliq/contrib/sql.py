"""Messages and a database in one transaction, through SQLAlchemy Core: SQLite and PostgreSQL.

`once` makes a handler's work happen once: its row and the work commit together. `enqueue` writes a message as a row
together with the business data; `relay` sends the rows. Killed anywhere, the relay sends none twice and forgets none.
"""

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

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
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from reliq import Message, NewMessage, Reliq, ReliqError
from reliq.errors import InvalidSetting
from reliq.keys import check_name
from reliq.message import Body
from reliq.outage import Outage
from reliq.settings import BATCH_LARGEST, Duration, seconds

log = logging.getLogger("reliq.sql")

metadata = MetaData()

handled = Table(
    "reliq_handled",
    metadata,
    Column("queue", String(128), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("at", BigInteger, nullable=False),  # ms since the epoch
)

outbox = Table(
    "reliq_outbox",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("id", String(128), nullable=False, unique=True),
    Column("queue", String(128), nullable=False),
    Column("headers", Text, nullable=False),
    Column("delay", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

#: How long Redis remembers a row that was sent, should the relay die before it deletes the row.
_REMEMBERED = "7d"


def create_tables(connection: Connection | Engine) -> None:
    """Create the tables that are not there yet; `metadata` is for those who have migrations."""
    metadata.create_all(connection)


def once(connection: Connection, message: Message) -> bool:
    """Whether the message is new: write its row, in the caller's transaction.

    False: a transaction that committed has handled it; do nothing more and return. A second worker with the same
    message waits until the first one's transaction is over.
    """
    row = {"queue": message.queue, "id": message.id, "at": time.time_ns() // 1_000_000}
    insert: Any
    match connection.dialect.name:
        case "postgresql":
            insert = postgresql.insert(handled)
        case "sqlite":
            insert = sqlite.insert(handled)
        case other:
            raise InvalidSetting(f"the database is {other}: reliq.contrib.sql knows postgresql and sqlite")
    # RETURNING, because not every driver counts the rows of an insert.
    written = connection.execute(insert.values(row).on_conflict_do_nothing().returning(handled.c.id))
    return written.first() is not None


def forget(connection: Connection, older_than: Duration) -> int:
    """Delete the rows of messages that were handled before; how many. A message that comes later would run again."""
    oldest = time.time_ns() // 1_000_000 - round(seconds(older_than, "older_than") * 1000)
    return connection.execute(delete(handled).where(handled.c.at < oldest)).rowcount


def enqueue(
    connection: Connection,
    queue: str,
    body: Body,
    *,
    id: str | None = None,
    delay: Duration = 0,
    headers: Mapping[str, str] | None = None,
) -> str:
    """Write a message into the outbox, in the caller's transaction, and answer its id. `relay` sends it afterwards.

    `delay` counts from then. Raises InvalidMessage, InvalidName.
    """
    message = NewMessage(body, id=id, delay=delay, headers=headers)
    row = {
        "id": message.id, "queue": check_name(queue), "headers": json.dumps(message.headers), "delay": message.delay,
        "body": message.body,
    }  # fmt: skip
    connection.execute(outbox.insert().values(row))
    return message.id


def relay(engine: Engine, app: Reliq, stopping: threading.Event, pause: Duration = 0.5) -> None:
    """Send what comes into the outbox, until `stopping`. One process is enough; a second one does no harm."""
    wait, outage = seconds(pause, "pause", shortest=0.01), Outage(log, "outbox")
    while not stopping.is_set():
        try:
            sent = relay_once(engine, app)
            outage.over()
        except (ReliqError, SQLAlchemyError) as error:
            sent = 0
            outage.failed(error if isinstance(error, ReliqError) else ReliqError(type(error).__name__))
        if not sent:
            stopping.wait(wait)


def relay_once(engine: Engine, app: Reliq, limit: int = BATCH_LARGEST) -> int:
    """Send up to `limit` rows, oldest first, and delete them; how many.

    A row is sent with its id as deduplication key, so one that is sent again is no second message. A queue that
    refuses (QueueFull) does not hold up the others; its error is raised when they are through.
    """
    with engine.connect() as connection:
        rows = connection.execute(select(outbox).order_by(outbox.c.number).limit(limit)).all()
    by_queue: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in rows:
        by_queue[row.queue].append(row)
    refused: ReliqError | None = None
    sent = 0
    for queue, of_queue in by_queue.items():
        try:
            app.queue(queue).send_many([_message(row) for row in of_queue])
        except ReliqError as error:
            refused = error
        else:
            _delete(engine, of_queue)
            sent += len(of_queue)
    if refused is not None:
        raise refused
    return sent


def _message(row: Row[Any]) -> NewMessage:
    return NewMessage(
        bytes(row.body), id=row.id, headers=json.loads(row.headers), delay=row.delay,
        dedup_key=f"outbox:{row.id}", window=_REMEMBERED,
    )  # fmt: skip


def _delete(engine: Engine, rows: Sequence[Row[Any]]) -> None:
    with engine.begin() as connection:
        connection.execute(delete(outbox).where(outbox.c.number.in_([row.number for row in rows])))
