"""The new dead letters of queues, each for one of the processes that read them.

A worker or any monitor may have made a message a dead letter, and most monitors know nothing of the framework whose
task it was. So each of its workers reads the new dead letters of its queues. A mark in Redis makes sure that only one
worker has each.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import Any

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.dead_letter import DeadLetter
from reliq.model.keys import QueueKeys, new_owner
from reliq.protocol.listing import read_page
from reliq.runtime.failures import FailureLog
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store

_EVERY = 1.0  #: seconds between two looks
_OVERLAP_MS = 5_000  #: a letter may become visible so long after the time in its score
_FIRST_LOOK_MS = 86_400_000  #: how far a new worker looks back: a day, as long as Celery keeps results by default
_MARK_SECONDS = 2 * _FIRST_LOOK_MS / 1000
_TRY_FOR_MS = 600_000  #: while what follows a death fails
_PAGE = 100


class DeathReader(threading.Thread, ABC):
    """Follows the new dead letters of a worker's queues."""

    def __init__(self, name: str, log: logging.Logger, wanted: Callable[[DeadLetter], bool]) -> None:
        super().__init__(name=name, daemon=True)
        self._wanted = wanted
        self._name_in_marks = new_owner().encode()
        self._since: dict[str, int] = {}  #: by queue: from which score on letters are read
        self._seen: dict[str, set[str]] = {}  #: by queue: the tags of the letters that were read last
        self._stopping = threading.Event()
        self._log = log
        self._failures = FailureLog(log=log)
        self._outage = OutageLog(log, "reading dead letters")

    def run(self) -> None:
        while True:
            try:
                self.look()
                self._outage.over()
            except ReliqError as error:
                self._outage.failed(error)
            except Exception:  # noqa: BLE001  a framework may raise anything
                self._log.exception("reading dead letters failed; retrying")
            self._failures.flush()
            if self._stopping.wait(_EVERY):
                return

    def stop(self, **_: Any) -> None:
        self._stopping.set()

    @abstractmethod
    def look(self) -> None:
        """Look at the queues, by `look_at_all`."""

    def look_at_all(self, store: Store, homes: Collection[QueueKeys], follow: Callable[[DeadLetter], bool]) -> None:
        """Call `follow` for the new letters of these homes of queues that are this process's.

        A letter for which it answers False, as it failed, is tried again. Raises the error of a home that cannot be
        read, after a look at the others.
        """
        now: int = store.call(ops.server_time())
        failed: ReliqError | None = None
        for keys in homes:
            try:
                self.look_at(store, keys, now, follow)
            except ReliqError as error:  # its node is away; those of the others are not
                failed = error
        there = {keys.queue for keys in homes}
        for name in self._since.keys() - there:
            del self._since[name], self._seen[name]
        if failed is not None:
            raise failed

    def look_at(self, store: Store, keys: QueueKeys, now: int, follow: Callable[[DeadLetter], bool]) -> None:
        """Do so for one home; `now`: ms of the server's clock."""
        seen, read = self._seen.get(keys.queue, set()), set()
        since = now - _OVERLAP_MS
        for letter in self._letters(store, keys, self._since.get(keys.queue, now - _FIRST_LOOK_MS)):
            if letter.tag in seen or not self._is_mine(store, keys, letter) or follow(letter):
                read.add(letter.tag)
            elif now - letter.died_at < _TRY_FOR_MS:
                since = min(since, letter.died_at)
        self._since[keys.queue], self._seen[keys.queue] = since, read

    def _is_mine(self, store: Store, keys: QueueKeys, letter: DeadLetter) -> bool:
        """Whether this process is the one to follow the letter: the first that writes its name into the mark."""
        mark = keys.done(f"end {letter.tag}")
        if store.call(ops.begin_request(mark, self._name_in_marks, _MARK_SECONDS)):
            return True
        return bool(store.call(ops.request_record(mark)) == self._name_in_marks)

    def _letters(self, store: Store, keys: QueueKeys, since: int) -> Iterator[DeadLetter]:
        """Read the wanted dead letters, oldest first."""
        cursor: str | None = None
        while True:
            scores = str(since), "+inf"
            steps = read_page(
                DeadLetter, keys, keys.dead, "up", scores, _PAGE, cursor, bodies=True, wanted=self._wanted
            )
            letters, cursor = store.run(steps)
            yield from letters
            if cursor is None:
                return
