"""The parent of worker processes, with children that are no workers."""

import os
import signal
import sys
import threading

import pytest

from reliq.worker.supervisor import Child, Supervisor
from tests.support.workers import eventually

WAITS = "import signal; signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}); signal.pause()"


class Shop:
    """A supervisor in a thread, and the children it has started."""

    def __init__(self, take_back=lambda owner, seen_at: 0, refusals=()):
        self.started, self.refusals = [], list(refusals)
        self.supervisor = Supervisor(self.start, 3, 1.0, take_back)
        self.thread = threading.Thread(target=self.supervisor.run, daemon=True)

    def start(self, place):
        if len(self.started) == 3 and self.refusals:
            raise self.refusals.pop()
        self.started.append(Child(f"owner-{len(self.started)}", [sys.executable, "-ISc", WAITS], os.environ))
        return self.started[-1]

    def __enter__(self):
        self.thread.start()
        eventually(lambda: len(self.started) == 3)
        return self

    def __exit__(self, *_):
        self.supervisor.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()
        for child in self.started:
            assert child.process.poll() is not None
            child.process.stdin.close()


def test_children_that_die_while_redis_is_away_are_replaced_and_the_others_are_stopped_at_once():
    """A return of messages may wait for Redis for seconds: returns run side by side, and the supervisor goes on."""
    asked, away = [], threading.Event()

    def take_back(owner, seen_at):
        asked.append(owner)
        assert away.wait(30)
        return 0

    with Shop(take_back) as shop:
        for child in shop.started[:2]:
            child.process.kill()
        eventually(lambda: len(asked) == 2 and len(shop.started) == 5)
        shop.supervisor.stop()
        eventually(lambda: shop.started[2].process.poll() is not None)
        assert shop.thread.is_alive()
        away.set()
    assert {"owner-0", "owner-1"} <= set(asked)


@pytest.mark.parametrize("refusal", [BlockingIOError(11, "no process"), OSError(12, "no memory")], ids=str)
def test_a_child_that_the_system_does_not_start_is_tried_again_and_the_others_work_on(refusal, caplog):
    with Shop(refusals=[refusal]) as shop:
        shop.started[0].process.kill()
        eventually(lambda: len(shop.started) == 4)
        assert [child.process.poll() for child in shop.started] == [-signal.SIGKILL, None, None, None]
    assert "not_started" in caplog.text
