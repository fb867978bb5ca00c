"""The ends of Celery tasks that became dead letters, stored in the result backend: `get()` and chords end, too.

A Celery worker, a guard or any monitor may have made a task a dead letter, and most of these have no Celery
application. So the workers read the new dead letters of their queues, and one of them stores the end of each.
"""

import contextlib
import functools
import logging
from typing import Any

from celery.app.task import Context
from celery.backends.base import DisabledBackend
from celery.exceptions import InvalidTaskError, WorkerLostError
from celery.states import READY_STATES
from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.serialization import prepare_accept_content

from reliq.contrib.kombu.channel import REJECTED, Channel
from reliq.contrib.kombu.messages import TASK_ID, incoming
from reliq.contrib.new_deaths import DeathReader
from reliq.model.dead_letter import DeadLetter
from reliq.model.keys import QueueKeys

log = logging.getLogger("reliq.celery")


class EndStorer(DeathReader):
    """Stores the ends of the dead tasks in the queues of a Celery worker."""

    def __init__(self, consumer: Any) -> None:
        super().__init__("reliq-celery-ends", log, _is_unknown)
        self._app = consumer.app
        self._consumer = consumer

    def look(self) -> None:
        """Store the ends of all tasks that are new dead letters; raises the error of a queue that cannot be read."""
        channel = getattr(self._consumer.task_consumer, "channel", None)
        if channel is None or channel.closed:  # the worker connects again
            return
        broker = channel.connection.broker
        homes = [QueueKeys(broker.name_of(queue.name)) for queue in list(self._consumer.task_consumer.queues)]
        self.look_at_all(broker.store, homes, functools.partial(self._stored, channel))

    def _stored(self, channel: Any, letter: DeadLetter) -> bool:
        """Store the end of a task; whether that succeeded."""
        try:
            store_end(self._app, letter, channel)
        except Exception as error:  # noqa: BLE001  an errback may raise anything
            kind = ("end_not_stored", letter.queue, type(error).__qualname__)
            text = "end_not_stored queue=%s id=%s task_id=%s"
            values = letter.queue, letter.id, letter.headers[TASK_ID]
            self._failures.write(logging.ERROR, kind, text, *values, error=error)
            return False
        return True


def started(consumer: Any) -> EndStorer | None:
    """Return a running thread for a worker that consumes from reliq and has a result backend; None for others."""
    channel = getattr(consumer.task_consumer, "channel", None)
    if not isinstance(channel, Channel) or isinstance(consumer.app.backend, DisabledBackend):
        return None
    storer = EndStorer(consumer)
    storer.start()
    return storer


def store_end(app: Any, letter: DeadLetter, channel: Any) -> None:
    """Store a dead task as revoked if it has expired, else as failed, unless it has a result already."""
    message = channel.Message(incoming(letter), channel=channel)
    message.accept = prepare_accept_content(app.conf.accept_content)
    task = app.tasks.get(message.headers["task"])
    request, backend = _request(message), (task or app).backend
    if backend.get_state(request.id) in READY_STATES:
        return
    ignored = request.ignore_result or (message.headers.get("ignore_result") is None and task and task.ignore_result)
    stores = not ignored or bool(task and task.store_errors_even_if_ignored)
    if letter.reason == "expired":
        backend.mark_as_revoked(request.id, "expired", request=request, store_result=stores)
    else:
        backend.mark_as_failure(request.id, _error(letter), request=request, store_result=stores)


def _error(letter: DeadLetter) -> Any:
    where = f"it is dead letter {letter.id} of queue {letter.queue}"
    if letter.reason == "rejected":
        return InvalidTaskError(f"the worker could not read the task; {where}")
    return WorkerLostError(f"the task killed its process, or was lost with its worker, too often; {where}")


def _request(message: Any) -> Context:
    """Return the task's context as Celery's worker makes it; without its chord and errbacks if it is not readable."""
    given: dict[str, Any] = {}
    with contextlib.suppress(ContentDisallowed, DecodeError, ValueError, TypeError):
        args, kwargs, embed = message.payload
        given = {"args": args, "kwargs": kwargs, **(embed or {})}
    properties = message.properties
    return Context(
        {
            **message.headers,
            **given,
            "properties": properties,
            "reply_to": properties.get("reply_to"),
            "correlation_id": properties.get("correlation_id"),
            "delivery_info": message.delivery_info,
        }
    )


def _is_unknown(letter: DeadLetter) -> bool:
    """Whether it is of a task whose end Celery does not know."""
    if TASK_ID not in letter.headers:
        return False
    last = letter.last_error
    refused = letter.reason == "rejected" and last is not None and last.text.startswith(REJECTED)
    return refused or letter.reason in ("expired", "max_deliveries")
