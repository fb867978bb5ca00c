"""Celery on reliq: `configure(app, "reliq+redis://localhost:6379/0")`.

The URL alone suffices to use reliq (`reliq.contrib.kombu`). `configure` also sets what Celery needs to lose no task:
late acks, redelivery of tasks whose process was killed, and dead letters with tracebacks for tasks that fail for good.
"""

import contextlib
import ctypes
import functools
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

try:
    from billiard.einfo import ExceptionInfo
    from celery import Celery, signals
    from celery.exceptions import Reject
    from celery.worker.request import Request as _Request
    from kombu.exceptions import OperationalError
except ImportError as error:
    from reliq.extras import missing_extra

    raise missing_extra("reliq.contrib.celery", "celery", error) from None

import reliq.contrib.kombu as _registers_the_transport  # noqa: F401
from reliq.contrib import celery_ends
from reliq.contrib.kombu.channel import REJECTED, Channel
from reliq.contrib.kombu.options import SCHEMES, Options
from reliq.errors import InvalidSetting

_log = logging.getLogger("reliq.celery")

_PLAIN = "celery.worker.request:Request"
_OURS = "reliq.contrib.celery:Request"
_PR_SET_PDEATHSIG = 1


def configure(app: Celery, url: str | None = None, *, dead_letters: bool = True, **transport_options: Any) -> None:
    """Set an app's broker, and what makes its tasks survive a kill of any process.

    `url`: the broker; None leaves `broker_url`. `dead_letters`: tasks that fail for good become dead letters, with
    their traceback; otherwise only their result says so, as usual in Celery. `transport_options` are those of
    `reliq.contrib.kombu.options.Options`, for example lease="30s". What is set here may be changed afterwards, for
    single tasks too: acks_late, reject_on_worker_lost, acks_on_failure.

    Raises InvalidSetting for other options, and for the URL of another transport.
    """
    if unknown := Options.unknown(transport_options):
        names, known = ", ".join(unknown), ", ".join(Options.__slots__)
        raise InvalidSetting(f"configure() does not know {names}: the options of the transport are {known}")
    if url is not None and not url.startswith("reliq") and not app.conf.broker_transport:
        other = url.partition("://")[0]
        scheme = other if other in SCHEMES else "redis"
        raise InvalidSetting(f"configure(): {other}:// is another transport of Celery: write reliq+{scheme}://")
    settings: dict[str, Any] = {
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_acks_on_failure": not dead_letters,
        "broker_connection_retry_on_startup": True,
    }
    if url is not None:
        settings["broker_url"] = url
    app.conf.update(settings)
    app.conf.broker_transport_options = {**(app.conf.broker_transport_options or {}), **transport_options}
    signals.worker_init.connect(_prepare_worker, dispatch_uid="reliq.prepare_worker", weak=False)
    signals.worker_ready.connect(_keep_unreadable, dispatch_uid="reliq.keep_unreadable", weak=False)
    signals.worker_ready.connect(_store_ends, dispatch_uid="reliq.store_ends", weak=False)


class Request(_Request):
    """Celery's request, which tells the transport why a task is rejected, and settles its message in any case."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Celery makes a class of each task's requests, with a faster `on_success`."""
        super().__init_subclass__(**options)
        if (own := vars(cls).get("on_success")) is not None:
            cls.on_success = _that_knows_failures(own)

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        error = exc_info.exception
        error = getattr(error, "exc", error)  # of an ExceptionWithTraceback
        if isinstance(error, Reject) and isinstance(error.reason, OperationalError):
            error.requeue = True  # by Task.retry, which could not send: Redis is away, or the queue is full
            self._note(type(error.reason).__name__, str(exc_info.traceback or error.reason))
        elif not (isinstance(error, Reject) and error.requeue):  # put back on purpose: not a failure
            self._note(type(error).__name__, str(exc_info.traceback or error))
        with self._settled(requeue=not isinstance(error, Reject) or error.requeue):
            return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        if not soft:
            self._note("TimeLimitExceeded", f"the task took more than {timeout} seconds")
        with self._settled(requeue=True):
            super().on_timeout(soft, timeout)

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """End the task, in a cold shutdown; the pools threads and solo cannot, and their tasks run to their end."""
        with contextlib.suppress(NotImplementedError):  # solo would raise it in the task
            super().cancel(pool, signal, emit_retry)

    def _note(self, error_class: str, text: str) -> None:
        self.message.failure = error_class, text

    @contextlib.contextmanager
    def _settled(self, *, requeue: bool) -> Iterator[None]:
        """Reject the message if Celery does not settle it because of an error: this worker would keep it for good.

        The result backend may be away; and a MemoryError is to end the worker, while its message has a failure more.
        """
        try:
            yield
        except BaseException:
            if self.task.acks_late:
                self.reject(requeue=requeue)
            raise


def _that_knows_failures(on_success: Callable[..., Any]) -> Callable[..., Any]:
    """Return it with the failures that the pools threads and solo give to it: a task has raised, say, SystemExit."""

    @functools.wraps(on_success)
    def told(self: Request, outcome: Any, **options: Any) -> Any:
        if isinstance(outcome, ExceptionInfo):
            return self.on_failure(outcome)
        return on_success(self, outcome, **options)

    return told


def _prepare_worker(sender: Any, **_: Any) -> None:
    """Use our requests for all tasks of a worker that have Celery's own, and have it guarded."""
    options = sender.app.conf.broker_transport_options or {}
    if ignored := Options.unknown(options):
        _log.warning("broker_transport_options_ignored names=%s", ",".join(ignored))
    sender.app.conf.broker_transport_options = {"guard": True, **options}
    for task in sender.app.tasks.values():
        if task.Request == _PLAIN:
            type(task).Request = _OURS
    signals.worker_process_init.connect(_end_with(os.getpid()), dispatch_uid="reliq.end_with_parent", weak=False)


def _keep_unreadable(sender: Any, **_: Any) -> None:
    """Have a worker make dead letters of messages that it cannot decode: Celery acks them, and they would be lost."""

    def on_decode_error(message: Any, error: Exception) -> None:
        text = "unreadable queue=%s id=%s task=%s: it is a dead letter now"
        names = message.delivery_info.get("routing_key"), message.headers.get("id"), message.headers.get("task")
        _log.critical(text, *names, exc_info=error)
        message.failure = type(error).__name__, f"{REJECTED}: {error}"
        message.reject()

    if isinstance(getattr(sender.task_consumer, "channel", None), Channel):
        # kombu calls that of the tasks' consumer where it cannot decompress a body.
        sender.on_decode_error = sender.task_consumer.on_decode_error = on_decode_error


def _store_ends(sender: Any, **_: Any) -> None:
    """Have the ends of tasks that become dead letters stored while a worker runs."""
    storer = celery_ends.started(sender)
    if storer is not None:
        signals.worker_shutdown.connect(storer.stop, weak=False)


def _end_with(worker: int) -> Any:
    """Return a signal handler that makes a pool process end with the worker that forked it.

    The tasks of a killed worker run again elsewhere within seconds; what is left of its pool must not run them, too.
    """

    def end_with_parent(**_: Any) -> None:
        if sys.platform == "linux" and os.getppid() == worker:
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return end_with_parent
