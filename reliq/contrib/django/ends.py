"""The result of a task of which there is a message, or a dead letter."""

from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from reliq import Message
from reliq.contrib.django.compat import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus, change
from reliq.model.dead_letter import DeadLetter


def result_of(backend: Any, task: Any, message: Message) -> Any:
    """Return the result of a message's task: with its earlier attempts, if results are stored. Raises as the cache."""
    try:
        return backend.noted(message.id)
    except (TaskResultDoesNotExist, NotImplementedError):
        return new_result(backend, task, message)


def new_result(backend: Any, task: Any, message: Message) -> Any:
    """Return the result of a message's task as far as the message knows it: how many attempts there were."""
    wanted = message.json()
    return TaskResult(
        task=task, id=message.id, status=TaskResultStatus.READY,
        enqueued_at=_time(message.enqueued_at), started_at=None,
        last_attempted_at=None, finished_at=None, args=wanted["args"], kwargs=wanted["kwargs"],
        backend=backend.alias, errors=[], worker_ids=["unknown"] * (message.failures + message.deliveries),
    )  # fmt: skip


def bury(result: Any, letter: DeadLetter) -> None:
    """Make a task a failed one: its message is a dead letter."""
    change(result, status=TaskResultStatus.FAILED, finished_at=_time(letter.died_at))
    text = "\n".join((f"its message became a dead letter: {letter.reason}", *(one.text for one in letter.errors)))
    result.errors.append(TaskError(exception_class_path="reliq.Dead", traceback=text))


def _time(ms: int) -> datetime:
    """Return a time, given in ms since the epoch, as Django has times: naive and local unless USE_TZ is set."""
    return datetime.fromtimestamp(ms / 1000, UTC if settings.USE_TZ else None)
