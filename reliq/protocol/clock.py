"""The Redis server's clock as this process knows it, and how to forget it when another server comes."""

import time
from typing import Protocol, TypeVar

from reliq import ops
from reliq.ops import Steps
from reliq.runtime.moment import boot_time

T = TypeVar("T")


def this_machines_ms() -> int:
    return time.time_ns() // 1_000_000


def boot_ms() -> int:
    return int(boot_time() * 1000)


class Clock:
    """An estimate of the Redis server's clock: its latest known time, and what has passed since.

    Until a time is known, that of this machine stands for it.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the time: another server comes."""
        self.known = False
        self._ahead = 0  #: ms, of `boot_ms`

    def now(self) -> int:
        """Return the estimated time of the server, ms since the epoch."""
        return boot_ms() + self._ahead if self.known else this_machines_ms()

    def note(self, server: int, called_at: int) -> None:
        """Note the time, in ms, that the server has reported to a call of `called_at`, by `boot_ms`.

        The answer may be old: it has waited for a process that was suspended. So the estimate so far stays, as far as
        the answer does not contradict it.
        """
        now = boot_ms()
        ahead = self._ahead if self.known else this_machines_ms() - now
        self._ahead = min(max(ahead, server - now), server - called_at)
        self.known = True

    def ask(self) -> Steps[None]:
        """Ask the server for its time."""
        called_at = boot_ms()
        self.note((yield ops.server_time()), called_at)

    def ask_with(self, op: ops.Op[T]) -> Steps[T]:
        """Do an op, and ask the server for its time in the same round trip."""
        called_at = boot_ms()
        answer, now = yield [op, ops.server_time()]
        self.note(now, called_at)
        return answer  # type: ignore[no-any-return]


class Learner(Protocol):
    """What has read something from the server that it does not read again each time."""

    def forget(self) -> None:
        """Forget it."""
