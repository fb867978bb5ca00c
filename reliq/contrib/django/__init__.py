"""Django's tasks on reliq: a backend for the setting TASKS, in Django 6 or with the backport `django-tasks`.

    TASKS = {"default": {
        "BACKEND": "reliq.contrib.django.ReliqBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"url": "redis://localhost:6379/0", "retries": 5},
    }}

`reliq worker reliq.contrib.django.worker:app` runs the tasks, with DJANGO_SETTINGS_MODULE set as for manage.py.
"""

import functools
from typing import Any

try:
    from django.db import transaction
    from django.utils import timezone
except ImportError as error:
    from reliq.extras import missing_extra

    raise missing_extra("reliq.contrib.django", "django", error) from None

from reliq import NewMessage, Reliq
from reliq.contrib.django.compat import BaseTaskBackend, TaskResult, TaskResultStatus, task_enqueued
from reliq.errors import InvalidSetting
from reliq.model.element import new_id

_OPTIONS = {"url", "retries", "on_commit", "max_body"}


class ReliqBackend(BaseTaskBackend):
    """A task backend. A task of a database transaction is sent when that commits, and not at all if it is rolled back.

    OPTIONS: `url` (default RELIQ_URL); `retries`: how often a failed task is tried again before it is a dead letter, 0
    by default; `on_commit`: False sends at once; `max_body`. Results are not stored.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if unknown := set(self.options) - _OPTIONS:
            raise InvalidSetting(f"TASKS[{alias!r}] has OPTIONS {sorted(unknown)}: reliq knows {sorted(_OPTIONS)}")
        self.app = Reliq(self.options.get("url"), max_body=self.options.get("max_body"))

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Send a task, when the current transaction commits; raises reliq's errors, then or now."""
        self.validate_task(task)
        result = TaskResult(
            task=task, id=new_id(), status=TaskResultStatus.READY, enqueued_at=timezone.now(), started_at=None,
            last_attempted_at=None, finished_at=None, args=list(args), kwargs=kwargs, backend=self.alias, errors=[],
            worker_ids=[],
        )  # fmt: skip
        body = {"task": task.module_path, "backend": self.alias, "args": result.args, "kwargs": result.kwargs}
        message = NewMessage(
            body,
            id=result.id,
            delay=0 if task.run_after is None else max(0.0, (task.run_after - timezone.now()).total_seconds()),
            headers={"task": task.module_path},
            priority="high" if task.priority > 0 else "low" if task.priority < 0 else "normal",
        )
        send = functools.partial(self._send, result, message)
        if self.options.get("on_commit", True):
            transaction.on_commit(send)
        else:
            send()
        return result

    def _send(self, result: Any, message: NewMessage) -> None:
        self.app.queue(result.task.queue_name).send(message)
        task_enqueued.send(type(self), task_result=result)
