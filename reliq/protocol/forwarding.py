"""Send dead letters on to another queue, by the setting `dead_to`."""

from collections.abc import Sequence
from typing import Final

from reliq import ops
from reliq.contract.values import MAX_ID
from reliq.errors import InvalidSetting, QueueFull
from reliq.model.dead_letter import DEAD_FROM, DeadLetter
from reliq.model.keys import QueueKeys, check_name, dedup_digest
from reliq.model.outgoing import NewMessage
from reliq.ops import Steps
from reliq.ops.coming import Coming
from reliq.ops.schema import Counter
from reliq.protocol import spread
from reliq.protocol.along import Along
from reliq.protocol.bodies import read_bodies
from reliq.protocol.dead_letters import discarded, last_seen
from reliq.protocol.features import ALONG
from reliq.protocol.homes import QueueHomes
from reliq.protocol.listing import walk
from reliq.protocol.producer import ProducerPool
from reliq.protocol.reports import forget_reports

#: Another one: how often they were received, or their handlers failed, before they came to this queue.
RECEIVED_ELSEWHERE: Final = "reliq-receives"

#: Reasons of dead letters that stay: no consumer has failed on them, or no consumer could read them.
_STAYING: Final = frozenset({"expired", "decode", "undecided"})

_DIGITS = 16
_WINDOW = 3600.0  #: seconds for which a letter that was sent on is recognized, if it could not be deleted at once


def check_target(queue: str, to: object) -> None:
    """Raise InvalidName, or InvalidSetting for the queue itself."""
    if check_name(to) == queue:
        raise InvalidSetting(f"dead_to of queue {queue!r} is the queue itself: its dead letters would never end")


def forward(keys: QueueKeys, to: str, pool: ProducerPool, at_most: int = 1000) -> Steps[int]:
    """Send dead letters of a home on to queue `to`, oldest first; return how many.

    A letter is deleted after it was sent; one that was sent before, by a monitor that died in between, is recognized.
    Raises QueueFull if the other queue has no room for any.
    """
    target, moved = QueueHomes(to, pool), 0

    def act(letters: list[DeadLetter]) -> Steps[bool]:
        nonlocal moved
        yield from read_bodies(keys, letters)
        left = [one for one in letters if one.body_is_read]
        yield ops.announce(to)
        at_once = len(left)
        while left:
            some = left[:at_once]
            try:
                yield from _send(keys, target, some)
            except QueueFull:  # as many as fit: half of them, and so on
                if at_once > 1:
                    at_once //= 2
                    continue
                if not moved:
                    raise
                return False
            gone: int = yield ops.discard(keys, discarded(some), Counter.FORWARDED)
            moved += gone
            if gone == len(some):
                yield from forget_reports(keys, last_seen(some))
            left = left[at_once:]
        return moved < at_most

    now = yield ops.server_time()
    yield from walk(DeadLetter, keys, keys.dead, ("-inf", f"({now + 1}"), _goes_on, act, removing=True)
    return moved


def _send(keys: QueueKeys, target: QueueHomes, letters: Sequence[DeadLetter]) -> Steps[None]:
    """Send letters to the target; what features keep for them is copied first to each home that is offered them."""
    messages = [_message(keys.logical, one) for one in letters]
    former = {message.id: letter.id for message, letter in zip(messages, letters, strict=True)}
    copied: list[tuple[Along, QueueKeys, list[Coming]]] = []
    known = set[tuple[str, str]]()

    def copy(home: QueueKeys, offered: Sequence[NewMessage]) -> Steps[None]:
        new = [one for one in offered if (home.queue, one.id) not in known]
        known.update((home.queue, one.id) for one in new)
        for along in ALONG if new else ():
            some = yield from along.send_on(keys, home, [_coming(home, one, former[one.id]) for one in new])
            copied.extend([(along, home, some)] if some else [])

    yield from spread.send(target, messages, before=copy)
    for along, home, some in copied:
        entered: list[bool] = yield [ops.exists(one.mark) for one in some]
        for is_there, tell in ((True, along.have_come), (False, along.have_gone)):
            told = [one for one, came in zip(some, entered, strict=True) if bool(came) is is_there]
            if told and (calls := tell(home, told)):
                yield calls


def _coming(home: QueueKeys, message: NewMessage, former_id: str) -> Coming:
    return Coming(message.id, home.dedup(message.dedup_key or ""), former_id)


def _goes_on(letter: DeadLetter) -> bool:
    return letter.readable and letter.reason not in _STAYING


def _message(queue: str, letter: DeadLetter) -> NewMessage:
    message = NewMessage(
        letter.body,
        id=_id_elsewhere(queue, letter),
        headers={**letter.headers, DEAD_FROM: queue, RECEIVED_ELSEWHERE: str(_receives(letter))},
        key=letter.key or None,
        limit_key=None if letter.key else letter.limit_key or None,
        priority=letter.priority,
        cost=letter.cost,
        dedup_key=f"{DEAD_FROM} {queue} {letter.tag}",
        window=_WINDOW,
    )
    message.enqueued_at = letter.enqueued_at
    message.offered = True  # a full queue refuses it again and again
    return message


def _id_elsewhere(queue: str, letter: DeadLetter) -> str:
    """Return the id of a letter in another queue. Copies of one published message have one id, and may meet there."""
    if not letter.routing_key:
        return letter.id
    name = f"{letter.id}:{queue}"
    return name if len(name) <= MAX_ID else f"{letter.id[: MAX_ID - 65]}:{dedup_digest(name)}"


def _receives(letter: DeadLetter) -> int:
    return number(letter.headers.get(RECEIVED_ELSEWHERE, "")) + letter.deliveries + letter.failures


def number(header: str) -> int:
    """Read a number that reliq has put into a header; 0 for what a sender has put there instead."""
    return int(header) if header.isascii() and header.isdecimal() and len(header) < _DIGITS else 0
