"""The tables: messages that were handled, the outbox, and the rows that were parked."""

import time
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    Text,
    TypeDecorator,
    cast,
    false,
    inspect,
    text,
    type_coerce,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateColumn

from reliq.errors import InvalidSetting

metadata = MetaData()


class _SQLiteText(TypeDecorator[str]):
    """A text of SQLite, into which another program may have written any bytes.

    What is no UTF-8 comes as surrogates (`surrogateescape`), and is found by them; the driver would refuse to read it.
    """

    impl: type[String] = Text
    cache_ok = True

    def column_expression(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return type_coerce(cast(column, LargeBinary), self)

    def bind_expression(self, bindvalue: Any) -> ColumnElement[Any]:
        return cast(bindvalue, Text)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        return value.encode(errors="surrogateescape") if isinstance(value, str) else value

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


class _SQLiteName(_SQLiteText):
    impl = String


#: Texts of the outbox.
_NAME, TEXT = String(128).with_variant(_SQLiteName(128), "sqlite"), Text().with_variant(_SQLiteText(), "sqlite")

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
        Column("queue", _NAME, nullable=False),
        Column("headers", TEXT, nullable=False),
        Column("delay", Float, nullable=False),
        Column("options", TEXT),  # JSON: the other options that are set; null in rows of programs that have none
        Column("body", LargeBinary, nullable=False),
    ]


outbox = Table("reliq_outbox", metadata, *_of_message(Column("id", _NAME, nullable=False, unique=True)))

#: Rows that the relay removed from the outbox because their queue will never accept them unchanged.
parked = Table(
    "reliq_outbox_parked",
    metadata,
    *_of_message(Column("id", _NAME, nullable=False)),
    Column("reason", TEXT, nullable=False),
    Column("at", BigInteger, nullable=False),  # ms since the epoch
)

#: The columns that the outbox and the parked rows share.
SHARED = tuple(one.name for one in outbox.columns if one.name != "number")


def among(column: Column[str], values: Collection[str]) -> ColumnElement[bool]:
    """Return the condition that a text is one of these. It is cast, for bytes of SQLite are unlike each text."""
    return cast(column, column.type).in_(values) if values else false()


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


def insert_new(connection: Connection, table: Table, row: Mapping[str, Any] | Select[Any]) -> bool:
    """Insert the row, or the one that a query finds, unless its key is there; return whether it was inserted."""
    insert: Any
    match connection.dialect.name:
        case "postgresql":
            insert = postgresql.insert(table)
        case "sqlite":
            insert = sqlite.insert(table)
        case other:
            raise InvalidSetting(f"the database is {other}: reliq.contrib.sql knows postgresql and sqlite")
    filled = insert.from_select(row.selected_columns.keys(), row) if isinstance(row, Select) else insert.values(row)
    # RETURNING, because not every driver counts the rows of an insert.
    written = connection.execute(filled.on_conflict_do_nothing().returning(table.c.id))
    return written.first() is not None


def now_ms() -> int:
    """Return the time in ms since the epoch."""
    return time.time_ns() // 1_000_000
