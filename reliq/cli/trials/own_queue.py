"""A trial in a queue of its own, beside a monitor, on a Redis that others may use: no leftovers."""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from reliq import ops
from reliq.cli.trials.processes import Workers, terminated_as_interrupted
from reliq.client.app import Reliq
from reliq.client.queue import Queue
from reliq.contract import values
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import QueueKeys
from reliq_monitor import MonitorThread

Report_co = TypeVar("Report_co", covariant=True)


class Trial(Protocol[Report_co]):
    """What is tried, with its queue and its workers."""

    queue: Queue
    workers: Workers

    def run(self) -> Report_co: ...


def run_trial(
    name: str, url: str | None, make: Callable[[Reliq, Path], Trial[Report_co]], *, embedded: bool = False
) -> Report_co:
    """Run a trial; everything is stopped and removed in any case. `embedded`: without a URL on a Redis of its own."""
    with contextlib.ExitStack() as everything:
        everything.enter_context(terminated_as_interrupted())
        if embedded and not url:
            url = everything.enter_context(EmbeddedRedis()).url
        folder = Path(everything.enter_context(tempfile.TemporaryDirectory(prefix=f"reliq-{name}-")))
        app = everything.enter_context(contextlib.closing(Reliq(url)))
        trial = make(app, folder)
        everything.callback(remove, app, QueueKeys(trial.queue.name))
        everything.enter_context(MonitorThread(app.store, reconnect_grace=values.LOOPBACK_GRACE))
        everything.callback(trial.workers.stop)
        return trial.run()


def remove(app: Reliq, keys: QueueKeys) -> None:
    """Delete a queue with all its messages, including held ones."""
    consumers = app.store.call(ops.members(keys.consumers))
    app.store.call(ops.drop_queue(keys, consumers))
