"""What a consumer knows of its state in Redis: its lease, and the messages in its processing list, in their order."""

import enum
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from reliq import ops
from reliq.contract import values
from reliq.model.message import Message
from reliq.ops import NOWHERE, Move, Settled
from reliq.protocol.claimant import Claimant

LARGE = 2 * values.INLINE_BODY_BYTES  #: bytes of an element that counts towards `most_bytes`


class State(enum.Enum):
    """The state of a consumer in Redis."""

    NEW = "not registered yet"
    REGISTERED = "holds a lease, and knows what its processing list holds"
    UNCERTAIN = "holds a lease; its processing list may hold what it does not know of"
    ENDED = "its lease was lost; it begins a new life under another id"


class UnderWay:
    """The calls without an answer so far. If the answer to one is not noted, the processing list is in doubt."""

    __slots__ = ("_doubt", "calls")

    def __init__(self, doubt: Callable[[], None]) -> None:
        self.calls = 0
        self._doubt = doubt

    def __enter__(self) -> None:
        self.calls += 1

    def __exit__(self, kind: object, error: object, at: object) -> None:
        if kind is not None:
            self._doubt()
        self.calls -= 1


class HeldMessages:
    """The messages of a processing list, oldest first.

    New messages enter that list at one end only, so its order is that of their arrival. What is known of it may be
    wrong for a while: a script that is told where messages are looks there before it acts.
    """

    def __init__(self) -> None:
        self.by_element: dict[bytes, Message] = {}  #: what arrives is added here
        self.results_kept = 0.0  #: seconds for which results are kept; 0: there are none
        self.results: dict[bytes, tuple[str, bytes]] = {}  #: of handled messages: id and result
        self.batches: dict[bytes, str] = {}  #: of the messages that are in one
        self.uncounted: set[bytes] = set()  #: moved by BLMOVE, which moves no counter
        self.unanswered: set[bytes] = set()  #: in settlements without an answer, which may have been carried out
        self.most_bytes: int | None = None  #: bytes of messages at which the consumer claims no further ones
        self.leaving = 0  #: of the oldest messages, those that calls under way are acking
        self._large: dict[bytes, int] = {}  #: the sizes of large messages, some of which may be settled

    def note_large(self, message: Message) -> None:
        """Note the size of a message that has more than LARGE bytes, if that counts."""
        if self.most_bytes is not None:  # only `room` drops settled ones, and without a limit it is not called
            self._large[message.element] = message.size

    def remove(self, element: bytes) -> Message | None:
        """Remove a message that was settled; return it, or None if it was removed before. Thread-safe."""
        self.uncounted.discard(element)
        self.unanswered.discard(element)
        self.results.pop(element, None)
        self.batches.pop(element, None)
        return self.by_element.pop(element, None)

    def remove_all(self, elements: Collection[bytes]) -> None:
        """Remove messages that were settled. Thread-safe."""
        pop = self.by_element.pop
        for element in elements:
            pop(element, None)
        for noted in (self.uncounted, self.unanswered):
            if noted:
                noted.difference_update(elements)
        for known in (self.results, self.batches):
            if known:
                for element in elements:
                    known.pop(element, None)

    def clear(self) -> None:
        """Forget all messages."""
        self.by_element.clear()
        self.uncounted.clear()
        self.unanswered.clear()
        self.results.clear()
        self.batches.clear()
        self._large.clear()

    def read_codes(self, elements: Sequence[bytes], codes: str) -> str:
        """Return the codes of a settlement; what an earlier one without an answer has settled is done by it."""
        if not self.unanswered:
            return codes
        ours = (code == Settled.ALREADY and one in self.unanswered for one, code in zip(elements, codes, strict=True))
        return "".join(Settled.DONE if is_ours else code for is_ours, code in zip(ours, codes, strict=True))

    def in_order(self, acks: Sequence[bytes]) -> Sequence[bytes]:
        """Return the acks in the order of the list: messages that are done out of order may be a row nevertheless."""
        oldest = list(itertools.islice(self.by_element, self.leaving, self.leaving + len(acks)))
        if oldest == acks:
            return acks
        place = {element: number for number, element in enumerate(list(self.by_element))}
        return sorted(acks, key=lambda element: place.get(element, len(place)))

    def row_of(self, acks: Sequence[bytes]) -> int:
        """Return how many of the acks, from the first on, should be the oldest messages when the call arrives.

        None that may have left the list: another message could be in its place, as Redis compares only two of a row.
        """
        oldest = list(itertools.islice(self.by_element, self.leaving, self.leaving + len(acks)))
        gone = self.unanswered
        if oldest == acks and not gone:
            return len(acks)
        pairs = zip(acks, oldest, strict=False)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1] and pair[0] not in gone, pairs)
        return sum(1 for _ in same)

    def places(self, elements: Iterable[bytes]) -> Mapping[bytes, int]:
        """Return where in the list each message should be when the call arrives, counted from the oldest one."""
        wanted = set(elements)
        if not wanted:
            return NOWHERE
        every = enumerate(list(self.by_element), -self.leaving)
        return {element: max(0, place) for place, element in every if element in wanted}

    def room(self, settled: Iterable[bytes] = ()) -> int:
        """Return how many bytes of messages a claim may bring once these are settled; 0: there are too many."""
        if self.most_bytes is None or not self._large:
            return values.CLAIM_BYTES
        self._large = {element: size for element, size in self._large.items() if element in self.by_element}
        staying = sum(self._large.values()) - sum(self._large.get(element, 0) for element in settled)
        return max(0, min(values.CLAIM_BYTES, self.most_bytes - staying))

    def settle_op(
        self, claimant: Claimant, acks: Sequence[bytes], moves: Sequence[Move], limit: int, row: int
    ) -> ops.Op[ops.Claimed]:
        """Return the op that settles messages and says where they should be; the first `row` acks are in a row.

        Thread-safe where it claims nothing.
        """
        if self.results_kept:  # the script stores those of a row as they are
            row = sum(1 for _ in itertools.takewhile(self.results.__contains__, acks[:row]))
        settled = [*acks, *(move.element for move in moves)]
        return claimant.settle_op(
            acks, moves, limit, uncounted=self.uncounted,
            room=self.room(settled) if limit > 0 else 0, row=row, places=self.places(settled[row:]),
            results_kept=self.results_kept, results=self.results, batches=self.batches,
        )  # fmt: skip
