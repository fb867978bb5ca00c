"""The messages that a consumer holds, how they are settled, and what their handlers ask of it."""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import CoroutineType
from typing import Any

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.life import Report
from reliq.model.message import Message
from reliq.ops import Move, Settled, Steps
from reliq.ops.schema import Counter
from reliq.protocol.claimant import Claimant
from reliq.protocol.features import ACTS
from reliq.protocol.held_messages import HeldMessages
from reliq.protocol.limits import Limits
from reliq.protocol.lives import Lives


class HeldSteps:
    """The part of a consumer that messages, their handlers and those who settle them see."""

    def __init__(self, keys: QueueKeys, claimant: Claimant) -> None:
        self.keys = keys
        self.claimant = claimant
        self.lives = Lives(keys)
        self.limits = Limits(keys, claimant.lease)
        self.run_report: Callable[[Steps[Any]], Any] = _not_running  #: returns what they do; of async handlers, awaited
        #: Is told of a message that left without being settled, and of the error of its step that is tried again.
        self.run_over: Callable[[Message, Exception | None], object] = lambda *_: None
        self.handles: Callable[[bytes], bool] | None = None  #: of the held messages, those that a handler has
        self.runs: Callable[[Message], bool] = self._is_in_hand  #: whether its handler runs, though it may be lost
        self._held = HeldMessages()
        self._settled_elsewhere: set[bytes] | None = None  #: settled by the watchdog while a read-back is under way

    @property
    def consumer(self) -> str:
        """Its id in Redis; a new one after each lost lease."""
        return self.claimant.id

    @property
    def held(self) -> Mapping[bytes, Message]:
        """The messages in the processing list by element, oldest first."""
        return self._held.by_element

    @property
    def awaited(self) -> str:
        """The key that exists when a claim may bring messages."""
        return self.limits.awaited

    def in_order(self, acks: Sequence[bytes]) -> Sequence[bytes]:
        """Return elements in the order of the processing list, in which fewer commands settle them."""
        return self._held.in_order(acks)

    def _settle_moves(self, moves: Sequence[Move]) -> ops.Op[ops.Claimed]:
        return self.settle_op((), moves)

    def settle_op(
        self, acks: Sequence[bytes], moves: Sequence[Move], limit: int = 0, row: int = 0
    ) -> ops.Op[ops.Claimed]:
        """Return the op that settles; another thread may use it to settle, and reports that with `note_answer`."""
        return self._held.settle_op(self.claimant, acks, moves, limit, row)

    def note_unanswered(self, acks: Sequence[bytes], moves: Sequence[Move]) -> None:
        """Note messages of a settlement without an answer, which may have been carried out. Thread-safe."""
        self._held.unanswered.update(acks, (move.element for move in moves))

    def was_unanswered(self, element: bytes) -> bool:
        """Whether a settlement of this message has got no answer."""
        return element in self._held.unanswered

    def note_answer(self, acks: Sequence[bytes], moves: Sequence[Move], codes: str) -> str:
        """Note that these messages are settled; return their codes. Thread-safe.

        What an earlier settlement without an answer has settled is done by this one.
        """
        elements = [*acks, *(move.element for move in moves)]
        codes = self._held.read_codes(elements, codes)
        self.note_settled(elements)
        return codes

    def note_settled(self, elements: Collection[bytes]) -> None:
        """Note elements that a call has settled, maybe that of another thread. Thread-safe."""
        settled = self._settled_elsewhere  # the end of a read-back takes it away at any moment
        if settled is not None:
            settled.update(elements)  # first: a read-back looks into `held` first
        self._held.remove_all(elements)

    def after_settling(self, acks: Sequence[bytes], moves: Sequence[Move], codes: str) -> Steps[None]:
        """Do what follows a settlement with these codes, for what left the queue or goes back to it."""
        if self.lives or Settled.CANCELLED in codes:
            yield from self.lives.end(acks, moves, codes)
        self.limits.note_moves(moves)

    def note_cancelled(self, told: ops.Told) -> list[Message]:
        """Note cancelled messages: id, and ms; return those held here that learn it now. Thread-safe."""
        return self.lives.note_cancelled(list(self.held.values()), told)

    def keep_results(self, kept: float) -> None:
        """Store, for so many seconds, what is given to `answer` for each message that is acked."""
        self._held.results_kept = kept

    def answer(self, message: Message, result: bytes) -> None:
        """Note the result of a message that is acked next. Thread-safe."""
        self._held.results[message.element] = (message.id, result)

    def place_of(self, message: Message) -> int | None:
        """Return where in the processing list a message should be; None: it is not in the hands of a handler."""
        element = message.element
        return self._held.places([element]).get(element) if self.handles is None or self.handles(element) else None

    def _is_in_hand(self, message: Message) -> bool:
        return message.lost or message.element in self.held

    def is_uncounted(self, message: Message) -> bool:
        """Whether BLMOVE has moved the message here, which moves no counter."""
        return message.element in self._held.uncounted

    def count_arrived(self) -> Steps[None]:
        """Count as claimed what BLMOVE has moved here, for a consumer whose messages others settle."""
        if arrived := len(self._held.uncounted):
            self._held.uncounted.clear()  # first: without an answer it may be counted
            with contextlib.suppress(ReliqError):  # the messages are claimed
                yield ops.count(self.keys, Counter.CLAIMED, arrived, once=True)

    def report(self, message: Message, report: Report) -> Awaitable[None]:
        """Store what a handler reports about a message that is held here."""
        stored = self.lives.report(self.consumer, message, report, self.place_of(message))
        return self.run_report(stored)  # type: ignore[no-any-return]

    def act(self, message: Message, asked: object) -> Any:
        """Do what a handler asks of a feature."""
        act = next(act for act in ACTS if type(asked) in act.asked)
        done = act.begin(self, message, asked)
        if isinstance(done, CoroutineType):
            self.lives.of(message).note_call(act.asked[type(asked)], done)
        return done

    def let_go(self, message: Message, error: Exception | None = None) -> None:
        """Note that a script has moved a message elsewhere: the run of its handler is over, by an error of a step."""
        message.lost = True
        self.run_over(message, error)  # first: the probe of a breaker that is not held counts as one that never ran
        self.note_settled([message.element])
        self.lives.forget(message.element)


def _not_running(steps: Steps[Any]) -> Any:
    raise ReliqError("these steps are not run by a worker or a consumer: there is no connection for the report")
