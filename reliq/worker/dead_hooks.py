"""What follows a death in a worker: a line in the log, and the application's hooks."""

import logging
from collections.abc import Sequence

from reliq.model.handlers import DeadHook
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Move
from reliq.protocol.bodies import read_bodies
from reliq.runtime.failures import failures
from reliq.transport.store import Store


class DeadHooks:
    """Called with the move of each message of a queue that this worker has made a dead letter."""

    def __init__(self, store: Store, keys: QueueKeys, hooks: Sequence[DeadHook]) -> None:
        self._store = store
        self._keys = keys
        self._queue = keys.logical
        self._hooks = hooks

    def __call__(self, move: Move) -> None:
        failures.died(self._queue, move.again)
        for hook in self._hooks:
            try:
                hook(self._letter(move))
            except BaseException as error:  # even sys.exit(): the worker goes on
                kind = ("on_dead_failed", self._queue, type(error).__qualname__)
                text = "on_dead_failed queue=%s id=%s error_class=%s"
                failures.write(logging.ERROR, kind, text, self._queue, move.id, kind[2], error=error)

    def _letter(self, move: Move) -> Message:
        letter = Message.decode(self._queue, move.again)
        if not letter.body_is_read:
            self._store.run(read_bodies(self._keys, [letter]))
        return letter
