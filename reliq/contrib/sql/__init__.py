"""Messages and database changes in one transaction, through SQLAlchemy Core: SQLite and PostgreSQL.

`once` makes a handler's work happen once: its row and the work commit together. `enqueue` writes a message as a row
together with the business data; `relay` sends the rows. Killed at any point, the relay loses no row and sends none
twice. A row that its queue will never accept is parked with the reason: `list_parked`, `retry_parked`, `outbox_counts`.
"""

try:
    import sqlalchemy  # noqa: F401
except ImportError as error:
    from reliq.extras import missing_extra

    raise missing_extra("reliq.contrib.sql", "sql", error) from None

from reliq.contrib.sql.handling import forget, once
from reliq.contrib.sql.parking import OutboxCounts, Parked, list_parked, outbox_counts, retry_parked
from reliq.contrib.sql.relaying import relay, relay_once
from reliq.contrib.sql.rows import enqueue, row_of
from reliq.contrib.sql.tables import create_tables, handled, metadata, outbox, parked

__all__ = [
    "OutboxCounts",
    "Parked",
    "create_tables",
    "enqueue",
    "forget",
    "handled",
    "list_parked",
    "metadata",
    "once",
    "outbox",
    "outbox_counts",
    "parked",
    "relay",
    "relay_once",
    "retry_parked",
    "row_of",
]
