"""Rows that their queue will never accept: moved aside with the reason, counted, listed, and put back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Delete, Engine, Row, Table, delete, func, literal, select

from reliq.contrib.sql.tables import SHARED, among, insert_new, now_ms, outbox, parked
from reliq.contrib.sql.transaction import Transaction, connection_of


def are(rows: Sequence[Row[Any]]) -> ColumnElement[bool]:
    """Return the condition that a row of the outbox is one of these.

    Another relay may have deleted them, and SQLite gives the number of a deleted row to a later one: that has another
    id.
    """
    return outbox.c.number.in_([row.number for row in rows]) & among(outbox.c.id, [row.id for row in rows])


def removal(rows: Sequence[Row[Any]]) -> Delete:
    """Return the deletion of these rows of the outbox."""
    return delete(outbox).where(are(rows))


def move_aside(engine: Engine, row: Row[Any], reason: str) -> None:
    """Move a row from the outbox to the parked rows, unless another relay has removed it.

    The database copies it: SQLite may have values in it that the types of the columns do not take.
    """
    added = {"reason": literal(reason, parked.c.reason.type), "at": literal(now_ms(), parked.c.at.type)}
    copy = select(*(outbox.c[name] for name in SHARED), *added.values()).where(are([row]))
    with engine.connect() as connection:
        connection.execute(parked.insert().from_select([*SHARED, *added], copy))
        if connection.execute(removal([row])).rowcount:
            connection.commit()


@dataclass(frozen=True, slots=True)
class Parked:
    """A row of the outbox that its queue did not accept. Of SQLite, bytes that are no UTF-8 are surrogates."""

    id: str
    queue: str
    reason: str
    parked_at: int  #: ms since the epoch


@dataclass(frozen=True, slots=True)
class OutboxCounts:
    """The numbers of waiting and parked rows of one queue."""

    waiting: int = 0
    parked: int = 0


def outbox_counts(connection: Transaction) -> dict[str, OutboxCounts]:
    """Count the waiting and the parked rows by queue, for a metric and an alert on `parked`."""
    opened = connection_of(connection)

    def count(table: Table) -> dict[str, int]:
        rows = opened.execute(select(table.c.queue, func.count()).group_by(table.c.queue))
        return {row[0]: row[1] for row in rows}

    waiting, aside = count(outbox), count(parked)
    return {queue: OutboxCounts(waiting.get(queue, 0), aside.get(queue, 0)) for queue in sorted({*waiting, *aside})}


def list_parked(connection: Transaction, queue: str | None = None, limit: int = 100) -> list[Parked]:
    """Read the parked rows of all queues or of one, oldest first."""
    wanted = select(parked.c.id, parked.c.queue, parked.c.reason, parked.c.at).order_by(parked.c.number).limit(limit)
    if queue is not None:
        wanted = wanted.where(among(parked.c.queue, [queue]))
    return [Parked(*row) for row in connection_of(connection).execute(wanted)]


def retry_parked(connection: Transaction, queue: str | None = None, ids: Sequence[str] | None = None) -> int:
    """Put parked rows back at the end of the outbox after their cause is fixed; return how many.

    Of all queues or of one; all rows or those with these ids. A row stays parked if its id waits in the outbox.
    """
    wanted = select(parked.c.number).order_by(parked.c.number).with_for_update(skip_locked=True)
    if queue is not None:
        wanted = wanted.where(among(parked.c.queue, [queue]))
    if ids is not None:
        wanted = wanted.where(among(parked.c.id, ids))
    back, opened = 0, connection_of(connection)
    for number in opened.execute(wanted).scalars().all():
        copy = select(*(parked.c[name] for name in SHARED)).where(parked.c.number == number)
        if insert_new(opened, outbox, copy):
            opened.execute(delete(parked).where(parked.c.number == number))
            back += 1
    return back
