"""The outcomes of a message that a consumer held: what was decided, and where the message goes.

Each outcome counts in the counter of its name (`reliq.contract.counters`), which is also its event in the history.
Derived from here: what the circuit breaker takes for a failed run, which destinations end a message, the codes of a
settle over HTTP, the reasons everywhere, docs/reference/outcomes.md. tests/unit/test_outcomes.py compares the moves of
the library, the script `settle`, and the pages.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Self


class Destination(StrEnum):
    """Where a message goes from the processing list, if it is not acked."""

    text: str
    leaves: bool  #: whether the message is deleted

    def __new__(cls, name: str, text: str = "", leaves: bool = False) -> Self:
        one = str.__new__(cls, name)
        one._value_, one.text, one.leaves = name, text, leaves
        return one

    HEAD = "head", "of the ready messages: it is taken last"
    TAIL = "tail", "of the ready messages: it is taken next"
    DELAYED = "delayed", "until its time"
    DEAD = "dead", "a dead letter"
    GONE = "gone", "it is deleted", True
    DONE = "done", "it is deleted, and its mark is set: it was handled, and must not run again", True
    ROUND = "round", "as head, for a member of a cycle, after others of its key; as gone if the member was removed"
    REST = "rest", "as delayed, for a member of a cycle, in the same way"


class Settled(StrEnum):
    """The result of settling one message: a letter of the script's reply."""

    code: str  #: over HTTP
    text: str

    def __new__(cls, letter: str, code: str = "", text: str = "") -> Self:
        one = str.__new__(cls, letter)
        one._value_, one.code, one.text = letter, code, text
        return one

    DONE = "d", "done", "settled by this call"
    CANCELLED = "c", "cancelled", "deleted by this call rather than put back: it was cancelled while it was held"
    ALREADY = "a", "already", "no longer held under a valid lease: settled before"
    LOST = "l", "lost", "no longer held, and the lease is over: others may have it"


class Stored(Enum):
    """What a stored result begins with, or is."""

    text: str

    def __new__(cls, letter: bytes, text: str = "") -> Self:
        one = object.__new__(cls)
        one._value_, one.text = letter, text
        return one

    JSON = b"j", "JSON follows, which the handler has returned"
    BYTES = b"b", "bytes follow, which the handler has returned"
    DEAD = b"d", "there is none: the message became a dead letter"
    CANCELLED = b"c", "there is none: the message was cancelled while a consumer held it"
    SKIPPED = b"s", "there is none: a handler with `once=` skipped the message as a duplicate"


#: How the circuit breaker counts a run that has this outcome; the others say nothing about the handler.
PASSED, FAILED = "passed", "failed"

#: The counter of all dead letters; `dead:REASON` counts those of each reason.
DEAD_LETTERED: Final = "dead_lettered"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One outcome that a consumer decides."""

    name: str  #: of its counter, and of its event
    text: str  #: when, as part of a sentence
    destinations: tuple[Destination, ...]
    run: str = ""  #: PASSED or FAILED
    verb: str = ""  #: of `settle` over HTTP
    no_verb: str = ""  #: why HTTP has none


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a message becomes a dead letter."""

    name: str
    text: str  #: as part of a sentence
    by: str  #: who decides it
    run: str = ""  #: PASSED or FAILED


_D = Destination

OUTCOMES: Final = (
    Outcome("acked", "it was handled", (_D.DONE, _D.GONE), PASSED, verb="ack"),
    Outcome("retried", "its handler failed, and it is retried", (_D.HEAD, _D.DELAYED), FAILED, verb="retry"),
    Outcome(
        "requeued", "its handler returned `Again`", (_D.HEAD, _D.DELAYED, _D.ROUND, _D.REST), PASSED,
        no_verb="a consumer over HTTP sends a new message",
    ),
    Outcome(
        "released", "its consumer could not start it; it is not charged", (_D.TAIL, _D.DELAYED, _D.HEAD),
        verb="release",
    ),
    Outcome(
        "cancelled", "it was cancelled while its consumer held it", (_D.GONE,),
        no_verb="the service decides it by itself",
    ),
    Outcome(
        "blanks_passed", "it is what remains of a message that was cancelled while it was ready", (_D.GONE,),
        no_verb="no consumer gets it",
    ),
    Outcome(DEAD_LETTERED, "for one of the reasons below", (_D.DEAD,), verb="dead"),
)  # fmt: skip

_CONSUMER, _MONITOR = "its consumer", "a monitor"

DEATHS: Final = (
    Reason("max_failures", "its handler failed too often", _CONSUMER, FAILED),
    Reason("max_deliveries", "too many consumers died with it", _MONITOR),
    Reason("expired", "it was not started, or not tried again, within its ttl", _CONSUMER),
    Reason("rejected", "its handler or its consumer rejected it", _CONSUMER, PASSED),
    Reason("decode", "its bytes are not a valid message", f"{_CONSUMER}, or {_MONITOR}"),
    Reason("undecided", "it was prepared, and never committed or rolled back", _MONITOR),
    Reason("predecessor", "a message that it waited for in its flow is gone, and was not handled", _MONITOR),
    Reason(
        "invalid",
        "its body does not fit its handler, or its row of a Spark job is not valid",
        f"{_CONSUMER}, or {_MONITOR}",
    ),
)

REASONS: Final = tuple(one.name for one in DEATHS)


def dead(reason: str) -> str:
    """Return the counter of dead letters with this reason, which is also their event in the history."""
    return f"dead:{reason}"


def counters_of(run: str) -> frozenset[str]:
    """Return the counters of moves after a run that PASSED or FAILED."""
    return frozenset(
        {one.name for one in OUTCOMES if one.run == run} | {dead(one.name) for one in DEATHS if one.run == run}
    )
