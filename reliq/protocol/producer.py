"""Producer sessions: the identity by which the enqueue script recognizes a repeated call."""

import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

from reliq import forks, ops
from reliq.contract import values
from reliq.errors import OutcomeUnknown
from reliq.model.keys import QueueKeys
from reliq.model.middleware import CommitHook, Middleware, Sending
from reliq.ops import Steps
from reliq.protocol.clock import Clock, Learner, boot_ms

T = TypeVar("T")


class ProducerSession:
    """One producer as known to Redis: an id and the number of its latest call.

    A session has one call under way at a time. Two at once could arrive in the wrong order; the earlier one would then
    be taken for a repeated call and be lost.
    """

    __slots__ = ("_free", "called_at", "ids", "mark", "producer", "sequence")

    def __init__(self, free: "deque[ProducerSession]") -> None:
        self.producer = secrets.token_hex(8)
        self.sequence = 0
        self.called_at = 0  #: ms of this machine's clock: when its latest call began
        self.mark = forks.mark()
        self.ids: list[str] = []  #: of the messages of its call
        self._free = free

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the call; OutcomeUnknown names its messages."""
        self._free.append(self)
        if error is not None and self.ids and isinstance(error, OutcomeUnknown):
            raise OutcomeUnknown(str(error), tuple(self.ids)) from None


def enqueue_with_bodies(
    queues: Sequence[QueueKeys],
    bodies: Sequence[ops.StoredBody],
    session: ProducerSession,
    enqueue: ops.Op[T],
    before: Sequence[ops.Op[Any]] = (),
) -> Steps[tuple[list[Any], T]]:
    """Run the op that enqueues messages, in one step with storing those of their bodies that are apart.

    The answers are those of the ops `before` it, which share its round trip if there are no bodies, and its own.
    """
    answers: list[Any] = []
    if bodies:
        if before:
            answers = yield list(before)
        *_, answer = yield ops.with_bodies(queues, bodies, session.producer, session.sequence, enqueue)
    elif before:
        *answers, answer = yield [*before, enqueue]
    else:
        answer = yield enqueue
    return answers, answer


class ProducerPool:
    """The sessions of one application: as many as calls were ever under way at once; each is reused by later calls."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.middleware: Sequence[Middleware[Sending]] = ()  #: around each send; the first is the outermost
        self.on_commit: Sequence[CommitHook] = ()  #: are told of prepared messages that are enqueued now
        self.max_body = values.BODY_LIMIT  #: bytes of the largest body that it sends
        self.sharded = False  #: whether queues may lie on different servers
        self.versions: Mapping[str, int] = {}  #: by queue: the version of the bodies that this application sends
        self.learners: WeakSet[Learner] = WeakSet()
        self._free: deque[ProducerSession] = deque()

    def forget(self) -> None:
        """Forget what was learned of the server and its queues: another one comes."""
        self.clock.forget()
        for one in list(self.learners):
            one.forget()

    def session(self, ids: list[str] | None = None) -> ProducerSession:
        """Return the session for a call with these messages, as a context: the call is under way in it."""
        while True:
            try:
                session = self._free.pop()
            except IndexError:
                session = ProducerSession(self._free)
            if session.mark == forks.mark():  # else it belongs to the parent process
                session.sequence += 1
                session.called_at = boot_ms()
                session.ids = ids or []
                return session
