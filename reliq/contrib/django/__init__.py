"""Django's tasks on reliq: a backend for the setting TASKS, in Django 6 or with the backport `django-tasks`.

    TASKS = {"default": {
        "BACKEND": "reliq.contrib.django.ReliqBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"url": "redis://localhost:6379/0", "retries": 5},
    }}

`reliq worker reliq.contrib.django.worker:app` runs the tasks, with DJANGO_SETTINGS_MODULE set as for manage.py.
"""

import functools
import time
from typing import Any

try:
    from django.db import transaction
    from django.utils import timezone
except ImportError as error:
    from reliq.extras import missing_extra

    raise missing_extra("reliq.contrib.django", "django", error) from None

from reliq import NewMessage, Reliq
from reliq.contract.values import Size
from reliq.contrib.django.compat import BaseTaskBackend, TaskResult, TaskResultStatus, task_enqueued
from reliq.contrib.django.ends import bury
from reliq.contrib.django.failures import log, log_failure
from reliq.errors import InvalidSetting, ReliqError
from reliq.model.element import new_id
from reliq.model.keys import check_name
from reliq.protocol.application import url_from_environment

_OPTIONS = {"url", "retries", "on_commit", "outbox", "results", "result_ttl", "max_body"}


class ReliqBackend(BaseTaskBackend):
    """A task backend. A task of a database transaction is sent when that commits, and not at all if it is rolled back.

    OPTIONS: `url` (default RELIQ_URL); `retries`: how often a failed task is tried again before it is a dead letter, 0
    by default; `on_commit`: False sends at once; `outbox`: the database (such as "default") in whose transaction the
    task is written, to be sent by a worker; `results`: the cache (such as "default") that keeps the results of tasks,
    for `result_ttl`, a day by default; `max_body`.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        if unknown := set(self.options) - _OPTIONS:
            raise InvalidSetting(f"TASKS[{alias!r}] has OPTIONS {sorted(unknown)}: reliq knows {sorted(_OPTIONS)}")
        if not self.queues:
            raise InvalidSetting(f"TASKS[{alias!r}] has no QUEUES: a worker takes the tasks of queues that it knows")
        for queue in self.queues:
            check_name(queue)  # a task of another name would be refused after its transaction has committed
        self.app = _client(url_from_environment(self.options.get("url")), self.options.get("max_body"))
        self.outbox: str | None = self.options.get("outbox")
        self._results = self._make_results()
        self.supports_get_result = self._results is not None

    def _make_results(self) -> Any:
        if "results" not in self.options:
            return None
        from reliq.contrib.django.results import Results

        return Results(self.options["results"], self.options.get("result_ttl", "1d"))

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Write a task into the outbox, or send it when the transaction commits; raises reliq's errors, then or now."""
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
            delay=_delay(task),
            headers={"task": task.module_path},
            priority="high" if task.priority > 0 else "low" if task.priority < 0 else "normal",
        )
        if self.outbox is not None:
            from reliq.contrib.django import outbox

            outbox.write(self.outbox, task.queue_name, message, self.app.max_body, task.run_after)
            transaction.on_commit(lambda: self._enqueued(result), using=self.outbox)
        elif self.options.get("on_commit", True):
            transaction.on_commit(lambda: self._send(result, message))
        else:
            self._send(result, message)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the result of a task; raises TaskResultDoesNotExist.

        A task has failed, too, if its message is a dead letter: that of a task that kills its workers, for example.
        """
        result = self.noted(result_id)
        if result.status in (TaskResultStatus.READY, TaskResultStatus.RUNNING):
            self._look_for_death(result)
        return result

    def noted(self, result_id: str) -> Any:
        """Return the result as workers have stored it; raises TaskResultDoesNotExist."""
        return super().get_result(result_id) if self._results is None else self._results.load(result_id)

    def note(self, result: Any) -> None:
        """Store the state of a task, if the options say where; what the cache raises is logged."""
        self._note(result)

    def _note(self, result: Any, *, anew: bool = True) -> None:
        """Do so; with `anew=False` only if no state is stored."""
        if self._results is None:
            return
        try:
            self._results.store(result, anew=anew)
        except Exception as error:  # noqa: BLE001  a cache may raise anything
            log_failure("result_not_stored", result.task.queue_name, result.id, error)

    def _look_for_death(self, result: Any) -> None:
        try:
            letter = self.app.queue(result.task.queue_name).dead.get(result.id)
        except ReliqError as error:
            log.warning("the state of task %s is what its worker has stored: %s", result.id, error)
            return
        if letter is not None:
            bury(result, letter)

    def _send(self, result: Any, message: NewMessage) -> None:
        message.delay = _delay(result.task)  # its transaction may have been a long one
        self.note(result)  # before a worker can do so
        self.app.queue(result.task.queue_name).send(message)
        task_enqueued.send_robust(type(self), task_result=result)

    def _enqueued(self, result: Any) -> None:
        self._note(result, anew=False)  # a worker may have begun it already
        task_enqueued.send_robust(type(self), task_result=result)


@functools.cache
def _client(url: str, max_body: Size | None) -> Reliq:
    """Return the client of all backends for this Redis: Django makes a backend for each thread, and each request."""
    return Reliq(url, max_body=max_body)


def _delay(task: Any) -> float:
    """Return the seconds until a task may run."""
    return 0.0 if task.run_after is None else max(0.0, task.run_after.timestamp() - time.time())
