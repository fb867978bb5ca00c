"""Signals, and the messages that are parked until theirs comes."""

import hmac
from collections.abc import Sequence

from reliq import ops
from reliq.contract.values import check_id
from reliq.errors import SignalRefused
from reliq.features.steps import ops as own
from reliq.features.steps.model import REFUSED, check_step_name, link_name, stored_signal
from reliq.features.steps.ops import Parked
from reliq.model.found import Place
from reliq.model.keys import QueueKeys
from reliq.model.result import read_result
from reliq.model.token import read_token
from reliq.ops import Steps
from reliq.ops.schema import Counter
from reliq.protocol.hidden import Hidden
from reliq.protocol.homes import QueueHomes

EARLY = 86_400.0  #: seconds for which a signal is kept for a message of which nothing is known
_PAGE = 500  #: parked messages that one call reads or removes


class SignalSteps:
    """The signals of the messages of a queue, with all of its homes."""

    def __init__(self, homes: QueueHomes) -> None:
        self._homes = homes

    def give(self, identity: str, name: str, value: object, early: float | None = EARLY) -> Steps[bool]:
        """Give a signal; return False if the message has had it. Raises SignalRefused, InvalidMessage, InvalidName."""
        check_id(identity)
        check_step_name(name, "signal")
        stored, every = stored_signal(value), (yield from self._homes.every())
        answers: list[str] = []
        if len(every) > 1:  # which one has the message is known if one of them knows anything of it
            answers = yield [own.signal(one.keys, identity, name, stored, None) for one in every]
            if early is None or not set(answers) <= _ONLY_EARLY:
                return _taken(self._homes.queue, identity, name, answers)
            every = [one for one, said in zip(every, answers, strict=True) if said == "unknown"]
        if every:  # those that an earlier call has not reached get it too
            answers += yield [own.signal(one.keys, identity, name, stored, early) for one in every]
        return _taken(self._homes.queue, identity, name, answers)

    def by_link(self, token: str, value: object) -> Steps[bool]:
        """Give the signal of a link; raises SignalRefused."""
        refused = SignalRefused("this link is not valid, or its message has ended", "unknown")
        try:
            identity, name, secret = read_token(token).decode().split("\n")
        except ValueError:
            raise refused from None
        for home in (yield from self._homes.every()):
            recorded = yield own.recorded(home.keys, identity)
            links = [one for one in recorded.entries if one.name == link_name(name) and one.kind == "s"]
            if links and hmac.compare_digest(str(read_result(links[0].value)).encode(), secret.encode()):
                return (yield from self.give(identity, name, value, None))
        raise refused


#: What homes answer, first what only the one says that has the message, or had it.
_KNOWN = ("given", "late", "ended", "before", "kept", "early before", "early", "unknown")
_ONLY_EARLY = {"early before", "early", "unknown"}


def _taken(queue: str, identity: str, name: str, answers: Sequence[str]) -> bool:
    said = min(answers, key=_KNOWN.index)
    if said in REFUSED:
        raise SignalRefused(f"message {identity} of {queue!r} does not take the signal {name!r}: {REFUSED[said]}", said)
    return said not in ("before", "early before")


def give_anywhere(identity: str, name: str, value: object) -> Steps[bool]:
    """Give a signal to a message of any queue; raises as `SignalSteps.give`."""
    check_id(identity)
    check_step_name(name, "signal")
    stored, names = stored_signal(value), sorted((yield ops.queue_names()))
    for start in range(0, len(names), _PAGE):
        some = names[start : start + _PAGE]
        answers = yield [own.signal(QueueKeys(one), identity, name, stored, None) for one in some]
        for queue, said in zip(some, answers, strict=True):
            if said != "unknown":
                return _taken(QueueKeys(queue).logical, identity, name, [said])
    raise SignalRefused(f"signal {name!r} for message {identity}: {REFUSED['unknown']}", "unknown")


def parked_in(homes: QueueHomes, limit: int) -> Steps[list[Parked]]:
    """Return parked messages, those that wait longest first among up to `limit` that were found."""
    found: list[Parked] = []
    for home in (yield from homes.every()):
        cursor, more = 0, True
        while more and len(found) < limit:
            cursor, some = yield own.scan_parked(home.keys, cursor, _PAGE)
            found += some
            more = cursor > 0
    return sorted(found, key=lambda one: one.since)[:limit]


def _withdraw(keys: QueueKeys, identity: str) -> Steps[bool]:
    return bool((yield own.remove_parked(keys, Counter.CANCELLED, [identity])))


def _purge(keys: QueueKeys) -> Steps[int]:
    removed = 0
    while True:
        _, some = yield own.scan_parked(keys, 0, _PAGE)
        if not some:
            return removed
        removed += yield own.remove_parked(keys, Counter.PURGED, [one.id for one in some])


WAITING = Hidden(Place.PARKED, own.parked_element, _withdraw, _purge)
