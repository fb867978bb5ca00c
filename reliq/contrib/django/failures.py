"""The log `reliq.django`, and what the cache of results has raised in it."""

import logging

from reliq.runtime.failures import FailureLog

log = logging.getLogger("reliq.django")
_failures = FailureLog(log=log)


def log_failure(event: str, queue: str, id: str, error: Exception) -> None:
    """Log what the cache of results has raised, at most ten times a minute for each event, queue and class of error."""
    kind = event, queue, type(error).__qualname__
    _failures.write(logging.ERROR, kind, f"{event} queue=%s id=%s", queue, id, error=error)
