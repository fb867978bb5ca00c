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
    """Return SQLAlchemy's engine for one of Django's databases; raises InvalidSetting for other kinds of them."""
    connection = connections[database]
    settings = connection.settings_dict
    match connection.vendor:
        case "sqlite":
            waiting = {name: value for name, value in settings["OPTIONS"].items() if name == "timeout"}
            url = URL.create("sqlite", database=str(settings["NAME"]))
            return create_engine(url, pool_pre_ping=True, connect_args=waiting)
        case "postgresql":
            return _postgresql(connection, settings["OPTIONS"].get("assume_role"))
        case other:
            raise InvalidSetting(f"the option outbox needs PostgreSQL or SQLite: the database {database!r} is {other}")


def _postgresql(connection: Any, role: str | None) -> Engine:
    """Return an engine that connects as Django does: each time with what Django would give the driver then."""
    engine = create_engine(f"postgresql+{connection.Database.__name__}://", pool_pre_ping=True)
    event.listen(engine, "do_connect", lambda *given: given[-1].update(_arguments(connection)))
    if role:
        event.listen(engine, "connect", lambda opened, _: _assume(opened, connection.ops.quote_name(role)))
    return engine


def _arguments(connection: Any) -> dict[str, Any]:
    """Return the driver's arguments, without those for Django's own cursors."""
    arguments = connection.get_connection_params()
    return {name: value for name, value in arguments.items() if name not in ("context", "cursor_factory")}


def _assume(opened: Any, role: str) -> None:
    with opened.cursor() as cursor:
        cursor.execute(f"SET ROLE {role}")
    opened.commit()  # a rollback would undo it
