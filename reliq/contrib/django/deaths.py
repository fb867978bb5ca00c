"""The signal `task_finished` for tasks that end in no worker: they killed theirs again and again, or expired."""

import logging
from collections.abc import Sequence

from django.db import close_old_connections
from django.utils.module_loading import import_string

from reliq import Reliq, ops
from reliq.contrib.django import ReliqBackend
from reliq.contrib.django.compat import task_finished
from reliq.contrib.django.ends import bury, result_of
from reliq.contrib.django.failures import log
from reliq.contrib.new_deaths import DeathReader
from reliq.model.dead_letter import DeadLetter
from reliq.model.keys import QueueKeys


class Deaths(DeathReader):
    """Sends the signal in one of the workers. What is stored of the task stays: a redrive lets it run again."""

    def __init__(self, app: Reliq, backends: Sequence[ReliqBackend]) -> None:
        super().__init__("reliq-django-deaths", log, _is_unknown)
        self._store = app.store
        self._backends = {queue: backend for backend in backends for queue in backend.queues}

    def look(self) -> None:
        layouts = {queue: self._store.call(ops.layout(QueueKeys(queue))) for queue in self._backends}
        homes = [QueueKeys(home) for queue, layout in layouts.items() for home in layout.every(queue)]
        self.look_at_all(self._store, homes, self._finished)

    def _finished(self, letter: DeadLetter) -> bool:
        backend = self._backends[letter.queue]
        close_old_connections()
        try:
            result = result_of(backend, import_string(letter.json()["task"]), letter)
            bury(result, letter)
            task_finished.send_robust(type(backend), task_result=result)  # logs what a receiver raises
        except Exception as error:  # noqa: BLE001  a cache may raise anything, and so may the module of the task
            kind = ("not_finished", letter.queue, type(error).__qualname__)
            self._failures.write(
                logging.ERROR, kind, "not_finished queue=%s id=%s", letter.queue, letter.id, error=error
            )
            return False
        finally:
            close_old_connections()
        return True


def _is_unknown(letter: DeadLetter) -> bool:
    """Whether it is of a task whose end Django does not know."""
    return letter.reason in ("expired", "max_deliveries")
