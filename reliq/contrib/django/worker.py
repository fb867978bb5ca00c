"""The application that runs Django's tasks: `reliq worker reliq.contrib.django.worker:app`."""

import functools
import os
import socket
import traceback
from collections import Counter
from typing import Any

import django
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone
from django.utils.module_loading import import_string

import reliq
from reliq.contrib.django import ReliqBackend
from reliq.contrib.django.compat import (
    Task,
    TaskContext,
    TaskError,
    TaskResultStatus,
    change,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from reliq.contrib.django.deaths import Deaths
from reliq.contrib.django.ends import new_result, result_of
from reliq.contrib.django.failures import log_failure


def application() -> reliq.Reliq:
    """Return an application with a handler for each queue of the reliq backends in TASKS; they share one Redis."""
    django.setup()
    backends = [task_backends[alias] for alias in settings.TASKS]
    ours = [one for one in backends if isinstance(one, ReliqBackend)]
    if not ours or len({one.app.url for one in ours}) > 1:
        raise reliq.errors.InvalidSetting("TASKS must have backends reliq.contrib.django.ReliqBackend, of one url")
    owners = Counter(queue for backend in ours for queue in backend.queues)
    if shared := sorted(queue for queue, count in owners.items() if count > 1):
        raise reliq.errors.InvalidSetting(f"TASKS has several backends with the queues {shared}: use one a queue")
    app = reliq.Reliq(ours[0].app.url, max_body=ours[0].options.get("max_body"))
    for backend in ours:
        retries = int(backend.options.get("retries", 0))
        policy: dict[str, Any] = {"dead_on": BaseException}
        if retries:
            policy = {"retry": reliq.exponential(first=5, factor=3, jitter=0.2, limit=retries)}
        for queue in sorted(backend.queues):
            app.handler(queue, **policy)(functools.partial(run, backend))
    for database in sorted({one.outbox for one in ours if one.outbox is not None}):
        _relay(database, app)
    Deaths(app, ours).start()
    return app


def _relay(database: str, app: reliq.Reliq) -> None:
    from reliq.contrib.django.outbox import relaying  # needs SQLAlchemy

    relaying(database, app)


def run(backend: ReliqBackend, message: reliq.Message) -> None:
    """Run the task of a message; what it raises makes the message fail.

    What a signal's receiver raises is logged, and so is what the cache of results raises.
    """
    task = import_string(name := message.json()["task"])
    if not isinstance(task, Task):
        raise reliq.Dead(f"{name} is not a task")
    close_old_connections()
    result = _begun(backend, task, message)
    task_started.send_robust(type(backend), task_result=result)
    try:
        context = (TaskContext(task_result=result),) if task.takes_context else ()
        value = task.call(*context, *result.args, **result.kwargs)
        returned = value if value is None else normalize_json(value)
    except BaseException as error:  # sys.exit() in a task is its failure
        text = "".join(traceback.format_exception(error))
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        result.errors.append(TaskError(exception_class_path=name, traceback=text))
        again = message.failures < int(backend.options.get("retries", 0)) and not isinstance(error, reliq.Dead)
        _end(backend, result, TaskResultStatus.READY if again else TaskResultStatus.FAILED)
        raise
    else:
        change(result, _return_value=returned)
        _end(backend, result, TaskResultStatus.SUCCESSFUL)
    finally:
        close_old_connections()


def _begun(backend: ReliqBackend, task: Any, message: reliq.Message) -> Any:
    """Return the result of a task that is starting."""
    result = _result(backend, task, message)
    now = timezone.now()
    change(result, status=TaskResultStatus.RUNNING, started_at=result.started_at or now, last_attempted_at=now)
    result.worker_ids.append(f"{socket.gethostname()}-{os.getpid()}")
    backend.note(result)
    return result


def _result(backend: ReliqBackend, task: Any, message: reliq.Message) -> Any:
    """Return the result of a message's task: without the errors of its earlier attempts if the cache is away."""
    try:
        return result_of(backend, task, message)
    except Exception as error:  # noqa: BLE001  a cache may raise anything
        made = new_result(backend, task, message)
        log_failure("result_not_loaded", message.queue, message.id, error)
        return made


def _end(backend: ReliqBackend, result: Any, status: Any) -> None:
    change(result, status=status, finished_at=None if status == TaskResultStatus.READY else timezone.now())
    backend.note(result)
    if status != TaskResultStatus.READY:
        task_finished.send_robust(type(backend), task_result=result)


app = application()
