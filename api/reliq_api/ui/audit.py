"""The audit log: who has done what on the dashboard, one line for each action that was carried out."""

import logging
from collections.abc import Sequence

from fastapi import Request

log = logging.getLogger("reliq.api.audit")

_SECRET = ("body", "headers", "confirm", "tag")  #: what a message contains, and what only confirms
_FIELDS_LARGEST = 20
_VALUE_LARGEST = 100


def note(request: Request, fields: Sequence[tuple[str, str]]) -> None:
    """Log an action: the id of the key, the address, and what the form named; never a body or a header."""
    access = getattr(request.state, "access", None)
    who = f"key {access.id}" if access is not None and access.id else "this machine, without a key"
    named = [(name, value[:_VALUE_LARGEST]) for name, value in fields if value and name not in _SECRET]
    details = ", ".join(f"{name}={value!r}" for name, value in named[:_FIELDS_LARGEST])
    more = f" and {len(named) - _FIELDS_LARGEST} more" if len(named) > _FIELDS_LARGEST else ""
    log.info("dashboard: %s did POST %s %s%s", who, request.url.path, details, more)
