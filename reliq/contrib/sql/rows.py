"""A message as a row of the outbox, and a row as a message."""

import json
from datetime import datetime
from typing import Any, Unpack

from sqlalchemy import Row

from reliq import NewMessage
from reliq.contract.keywords import PublishOptions
from reliq.contract.options import OUTBOX
from reliq.contract.values import Size
from reliq.contrib.sql.tables import now_ms, outbox
from reliq.contrib.sql.transaction import Transaction, connection_of
from reliq.errors import InvalidMessage
from reliq.model.keys import check_name
from reliq.model.outgoing import Body, check_option_names
from reliq.protocol.application import body_limit
from reliq.protocol.batch import checked

#: How long Redis remembers a sent row, in case the relay dies before it deletes the row.
REMEMBERED = "7d"
_COLUMNS = frozenset(("id", "headers", "delay"))  #: options of a message that have a column of their own
_DUE = "due"  #: in the column `options`: the ms since the epoch before which a message does not run


def enqueue(
    connection: Transaction,
    queue: str,
    body: Body,
    *,
    max_body: Size | None = None,
    **options: Unpack[PublishOptions],
) -> str:
    """Write a message into the outbox in the caller's transaction; return its id. `relay` sends it afterwards.

    The other options are those of PublishOptions: `delay` and `ttl` count from the sending, and a row needs no
    deduplication key, for it is sent once by its id. `max_body`: that of the Reliq with which the relay sends; default
    as there. Refuses what `send` would refuse: raises InvalidMessage, InvalidName, InvalidSetting,
    TypeError.
    """
    check_option_names(options, PublishOptions)
    row = row_of(check_name(queue), checked(NewMessage(body, **options), body_limit(max_body)))
    connection_of(connection).execute(outbox.insert().values(row))
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


def message_of(row: Row[Any]) -> NewMessage:
    """Return the message of a row of the outbox; its id is its deduplication key, so it is sent once.

    Another program may have written anything into the row: raises InvalidMessage.
    """
    try:
        return _decoded(row)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise InvalidMessage(f"not written by `enqueue`: {error}") from None


def _decoded(row: Row[Any]) -> NewMessage:
    options = json.loads(row.options or "{}") or {}  # another program may have written null
    if not isinstance(options, dict):
        raise TypeError("the column options must have a JSON object")
    due = options.pop(_DUE, None)
    return NewMessage(
        bytes(row.body), id=row.id, headers=json.loads(row.headers),
        delay=float(row.delay) if due is None else max(0.0, (due - now_ms()) / 1000),
        dedup_key=f"outbox:{row.id}", window=REMEMBERED, **options,
    )  # fmt: skip
