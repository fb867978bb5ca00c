"""The ends of Celery tasks that became dead letters, stored in the result backend: `get()` and chords end, too.

A Celery worker, a guard or any monitor may have made a task a dead letter, and most of these have no Celery
application. So each Celery worker reads the new dead letters of its queues. A mark in Redis makes sure that only one
worker stores the end of each.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from celery.app.task import Context
from celery.backends.base import DisabledBackend
from celery.exceptions import InvalidTaskError, WorkerLostError
from celery.states import READY_STATES
from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.serialization import prepare_accept_content

from reliq import ops
from reliq.contrib.kombu.channel import REJECTED, Channel
from reliq.contrib.kombu.messages import TASK_ID, incoming
from reliq.errors import ReliqError
from reliq.model.dead_letter import DeadLetter
from reliq.model.keys import QueueKeys, new_owner
from reliq.protocol.listing import read_page
from reliq.runtime.failures import FailureLog
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store

log = logging.getLogger("reliq.celery")
failures = FailureLog(log=log)

_EVERY = 1.0  #: seconds between two looks
_OVERLAP_MS = 5_000  #: a letter may become visible so long after the time in its score
_FIRST_LOOK_MS = 86_400_000  #: how far a new worker looks back: a day, as long as Celery keeps results by default
_MARK_SECONDS = 2 * _FIRST_LOOK_MS / 1000
_TRY_FOR_MS = 600_000  #: while the result backend fails
_PAGE = 100


class EndStorer(threading.Thread):
    """Stores the ends of the dead tasks in the queues of a Celery worker."""

    def __init__(self, consumer: Any) -> None:
        super().__init__(name="reliq-celery-ends", daemon=True)
        self._app = consumer.app
        self._consumer = consumer
        self._name = new_owner().encode()
        self._since: dict[str, int] = {}  #: by queue: from which score on letters are read
        self._seen: dict[str, set[str]] = {}  #: by queue: the tags of the letters that were read last
        self._stopping = threading.Event()
        self._outage = OutageLog(log, "reading dead letters")

    def run(self) -> None:
        while True:
            try:
                self.look()
                self._outage.over()
            except ReliqError as error:
                self._outage.failed(error)
            except Exception:
                log.exception("reading dead letters failed; retrying")
            if self._stopping.wait(_EVERY):
                return

    def stop(self, **_: Any) -> None:
        self._stopping.set()

    def look(self) -> None:
        """Store the ends of all tasks that are new dead letters; raises the error of a queue that cannot be read."""
        channel = getattr(self._consumer.task_consumer, "channel", None)
        if channel is None or channel.closed:  # the worker connects again
            return
        broker = channel.connection.broker
        now = broker.store.call(ops.server_time())
        failed: ReliqError | None = None
        for queue in list(self._consumer.task_consumer.queues):
            try:
                self._look_at(QueueKeys(broker.name_of(queue.name)), channel, now)
            except ReliqError as error:  # its node is away; those of the others are not
                failed = error
        if failed is not None:
            raise failed

    def _look_at(self, keys: QueueKeys, channel: Any, now: int) -> None:
        """Store the ends of a queue's new dead tasks; those that fail are tried again at the next look."""
        store, seen, read = channel.connection.broker.store, self._seen.get(keys.queue, set()), set()
        since = now - _OVERLAP_MS
        for letter in _letters(store, keys, self._since.get(keys.queue, now - _FIRST_LOOK_MS)):
            if letter.tag in seen or not self._is_mine(store, keys, letter) or self._stored(letter, channel):
                read.add(letter.tag)
            elif now - letter.died_at < _TRY_FOR_MS:
                since = min(since, letter.died_at)
        self._since[keys.queue], self._seen[keys.queue] = since, read

    def _is_mine(self, store: Store, keys: QueueKeys, letter: DeadLetter) -> bool:
        """Whether this worker is the one to store the end: the first that writes its name into the mark."""
        mark = keys.done(f"end {letter.tag}")
        if store.call(ops.begin_request(mark, self._name, _MARK_SECONDS)):
            return True
        return bool(store.call(ops.request_record(mark)) == self._name)

    def _stored(self, letter: DeadLetter, channel: Any) -> bool:
        """Store the end of a task; whether that succeeded."""
        try:
            store_end(self._app, letter, channel)
        except Exception as error:  # noqa: BLE001  an errback may raise anything
            kind = ("end_not_stored", letter.queue, type(error).__qualname__)
            text = "end_not_stored queue=%s id=%s task_id=%s"
            values = letter.queue, letter.id, letter.headers[TASK_ID]
            failures.write(logging.ERROR, kind, text, *values, error=error)
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


def _letters(store: Store, keys: QueueKeys, since: int) -> Iterator[DeadLetter]:
    """Read the dead letters of tasks whose end Celery does not know, oldest first."""
    cursor: str | None = None
    while True:
        scores = str(since), "+inf"
        steps = read_page(DeadLetter, keys, keys.dead, "up", scores, _PAGE, cursor, bodies=True, wanted=_is_unknown)
        letters, cursor = store.run(steps)
        yield from letters
        if cursor is None:
            return


def _is_unknown(letter: DeadLetter) -> bool:
    if TASK_ID not in letter.headers:
        return False
    last = letter.last_error
    refused = letter.reason == "rejected" and last is not None and last.text.startswith(REJECTED)
    return refused or letter.reason in ("expired", "max_deliveries")
