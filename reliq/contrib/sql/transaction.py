"""The caller's transaction, whichever object of SQLAlchemy stands for it."""

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session

from reliq.errors import InvalidSetting

Transaction = Connection | Session | scoped_session[Any]


def connection_of(transaction: Transaction) -> Connection:
    """Return the connection of a transaction; raises InvalidSetting for what has none, or only one to be awaited."""
    if isinstance(transaction, (Session, scoped_session)):
        return transaction.connection()
    if isinstance(transaction, Connection):
        return transaction
    raise InvalidSetting(
        f"{type(transaction).__name__} is no transaction: give a Connection or Session of SQLAlchemy, as in `with "
        "engine.begin() as connection`; with asyncio, that of `await session.run_sync(lambda session: ...)`"
    )
