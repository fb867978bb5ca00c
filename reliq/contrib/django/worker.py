"""The application that runs Django's tasks: `reliq worker reliq.contrib.django.worker:app`."""

import functools
from datetime import UTC, datetime
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
    TaskResult,
    TaskResultStatus,
    task_backends,
    task_finished,
    task_started,
)


def application() -> reliq.Reliq:
    """Return an application with a handler for each queue of the reliq backends in TASKS; they share one Redis."""
    django.setup()
    backends = [task_backends[alias] for alias in settings.TASKS]
    ours = [one for one in backends if isinstance(one, ReliqBackend)]
    if not ours or len({one.app.url for one in ours}) > 1:
        raise reliq.errors.InvalidSetting("TASKS must have backends reliq.contrib.django.ReliqBackend, of one url")
    app = reliq.Reliq(ours[0].app.url, max_body=ours[0].options.get("max_body"))
    for backend in ours:
        retries = int(backend.options.get("retries", 0))
        policy: dict[str, Any] = {"dead_on": Exception}
        if retries:
            policy = {"retry": reliq.exponential(first=5, factor=3, jitter=0.2, limit=retries)}
        for queue in sorted(backend.queues):
            app.handler(queue, **policy)(functools.partial(run, backend))
    return app


def run(backend: ReliqBackend, message: reliq.Message) -> None:
    """Run the task of a message; what it raises makes the message fail."""
    wanted = message.json()
    task = import_string(wanted["task"])
    if not isinstance(task, Task):
        raise reliq.Dead(f"{wanted['task']} is not a task")
    result = TaskResult(
        task=task, id=message.id, status=TaskResultStatus.RUNNING,
        enqueued_at=datetime.fromtimestamp(message.enqueued_at / 1000, UTC), started_at=timezone.now(),
        last_attempted_at=timezone.now(), finished_at=None, args=wanted["args"], kwargs=wanted["kwargs"],
        backend=backend.alias, errors=[], worker_ids=[],
    )  # fmt: skip
    close_old_connections()
    task_started.send(type(backend), task_result=result)
    try:
        context = (TaskContext(task_result=result),) if task.takes_context else ()
        task.call(*context, *result.args, **result.kwargs)
        _end(backend, result, TaskResultStatus.SUCCESSFUL)
    except Exception:
        _end(backend, result, TaskResultStatus.FAILED)
        raise
    finally:
        close_old_connections()


def _end(backend: ReliqBackend, result: Any, status: Any) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
    task_finished.send(type(backend), task_result=result)


app = application()
