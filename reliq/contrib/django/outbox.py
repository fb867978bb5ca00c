"""The outbox of `reliq.contrib.sql` in Django's database: a task is a row of the transaction that enqueues it."""

import threading
from datetime import datetime
from typing import Any

from django.db import connections
from sqlalchemy import URL, Engine, create_engine, event

from reliq import NewMessage, Reliq
from reliq.contrib.sql import outbox, relay, row_of
from reliq.errors import InvalidSetting
from reliq.protocol.batch import checked


def write(database: str, queue: str, message: NewMessage, max_body: int, due: datetime | None) -> None:
    """Write a row in the current transaction; raises InvalidMessage for what `send` would refuse."""
    row = row_of(queue, checked(message, max_body), due)
    places = ", ".join(["%s"] * len(row))
    with connections[database].cursor() as cursor:
        cursor.execute(f"INSERT INTO {outbox.name} ({', '.join(row)}) VALUES ({places})", [*row.values()])  # noqa: S608


def relaying(database: str, app: Reliq) -> threading.Thread:
    """Start a thread that sends the rows and deletes them. Each worker may have one, and be killed at any point."""
    arguments = (engine_of(database), app, threading.Event())
    thread = threading.Thread(target=relay, args=arguments, name="reliq-outbox", daemon=True)
    thread.start()
    return thread


def engine_of(database: str) -> Engine:
    """Return SQLAlchemy's engine for one of Django's databases."""
    connection = connections[database]
    settings = connection.settings_dict
    match connection.vendor:
        case "sqlite":
            return create_engine(URL.create("sqlite", database=str(settings["NAME"])), pool_pre_ping=True)
        case "postgresql":
            return _postgresql(connection, settings, dict(settings["OPTIONS"]))
        case other:
            raise InvalidSetting(f"the option outbox needs PostgreSQL or SQLite: the database {database!r} is {other}")


def _postgresql(connection: Any, settings: dict[str, Any], options: dict[str, Any]) -> Engine:
    role = options.pop("assume_role", None)  # an option of Django, not of the driver
    driver = connection.Database.__name__
    url = URL.create(
        f"postgresql+{driver}",
        username=settings["USER"] or None,
        password=settings["PASSWORD"] or None,
        host=settings["HOST"] or None,
        port=int(settings["PORT"]) if settings["PORT"] else None,
        database=settings["NAME"],
        query={name: value for name, value in options.items() if isinstance(value, str)},
    )
    engine = create_engine(url, pool_pre_ping=True)
    if role:
        event.listen(engine, "connect", lambda opened, _: _assume(opened, connection.ops.quote_name(role)))
    return engine


def _assume(opened: Any, role: str) -> None:
    with opened.cursor() as cursor:
        cursor.execute(f"SET ROLE {role}")
    opened.commit()  # a rollback would undo it
