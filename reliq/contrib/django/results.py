"""Results of tasks in one of Django's caches, which web processes and workers share."""

from typing import Any

from django.conf import settings
from django.core.cache import caches
from django.utils.module_loading import import_string

from reliq.contract.values import Duration, seconds
from reliq.contrib.django.compat import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from reliq.errors import InvalidSetting

_OF_ONE_PROCESS = {
    "django.core.cache.backends.locmem.LocMemCache", "django.core.cache.backends.dummy.DummyCache"
}  # fmt: skip
_FIELDS = ("enqueued_at", "started_at", "finished_at", "last_attempted_at", "args", "kwargs", "backend", "worker_ids")


class Results:
    """Stores and loads task results, for a time."""

    def __init__(self, cache: str, kept: Duration) -> None:
        if cache not in settings.CACHES:
            raise InvalidSetting(f"the option results names the cache {cache!r}: CACHES has {sorted(settings.CACHES)}")
        if (kind := settings.CACHES[cache]["BACKEND"]) in _OF_ONE_PROCESS:
            raise InvalidSetting(f"the option results names the cache {cache!r}, a {kind}: workers do not see it")
        self._cache = cache
        self._kept = seconds(kept, "result_ttl")

    def store(self, result: Any, *, anew: bool = True) -> None:
        """Store the state of a task; with `anew=False` only if there is none."""
        task, cache = result.task, caches[self._cache]
        (cache.set if anew else cache.add)(
            _key(result.id),
            {
                **{name: getattr(result, name) for name in _FIELDS},
                "task": task.module_path,
                "using": {"queue_name": task.queue_name, "priority": task.priority, "backend": task.backend},
                "status": str(result.status.value),
                "errors": [(one.exception_class_path, one.traceback) for one in result.errors],
                "return_value": result._return_value,  # noqa: SLF001  its property raises unless it is successful
            },
            self._kept,
        )

    def load(self, id: str) -> Any:
        """Return the result of a task; raises TaskResultDoesNotExist."""
        stored = caches[self._cache].get(_key(id))
        if stored is None:
            raise TaskResultDoesNotExist(id)
        result = TaskResult(
            task=import_string(stored["task"]).using(**stored["using"]), id=id,
            status=TaskResultStatus(stored["status"]),
            errors=[TaskError(exception_class_path=path, traceback=text) for path, text in stored["errors"]],
            **{name: stored[name] for name in _FIELDS},
        )  # fmt: skip
        object.__setattr__(result, "_return_value", stored["return_value"])
        return result


def _key(id: str) -> str:
    return f"reliq.task.{id}"
