"""Handling once: the row of a message and its handler's work commit together."""

from sqlalchemy import delete

from reliq import Message
from reliq.contract.values import Duration, seconds
from reliq.contrib.sql.tables import handled, insert_new, now_ms
from reliq.contrib.sql.transaction import Transaction, connection_of


def once(connection: Transaction, message: Message) -> bool:
    """Write a row for the message in the caller's transaction; return whether the message is new.

    False: a committed transaction has handled the message; do nothing and return. A second worker with the same message
    waits until the transaction of the first one is over.
    """
    row = {"queue": message.queue, "id": message.id, "at": now_ms()}
    return insert_new(connection_of(connection), handled, row)


def forget(connection: Transaction, older_than: Duration) -> int:
    """Delete the rows of messages handled before that time; return how many. Such a message would run again."""
    oldest = now_ms() - round(seconds(older_than, "older_than") * 1000)
    return connection_of(connection).execute(delete(handled).where(handled.c.at < oldest)).rowcount
