"""The steps that give signals.

Which home of a queue has a message is not known. A signal is given to each, so that one of them has it when the
message comes, or is brought by a monitor; those that a message does not come to forget it after a day.
"""

import hmac
import secrets
from collections.abc import Callable, Collection

from reliq import ops
from reliq.contract.values import check_id
from reliq.errors import InvalidName, SignalRefused
from reliq.features.steps import ops as own
from reliq.features.steps.model import REFUSED, check_step_name, link_name, stored_signal
from reliq.model.keys import QueueKeys, logical_name
from reliq.model.result import read_result
from reliq.model.token import read_token
from reliq.ops import Steps
from reliq.protocol.homes import QueueHomes
from reliq.runtime.pieces import pieces

EARLY = 86_400.0  #: seconds for which a signal is kept for a message of which nothing is known
_PAGE = 500  #: queues that one call asks


class SignalSteps:
    """The signals of the messages of a queue, with all of its homes."""

    def __init__(self, homes: QueueHomes) -> None:
        self._homes = homes

    def give(self, identity: str, name: str, value: object, early: float | None = EARLY) -> Steps[bool]:
        """Give a signal; return False if the message has had it. Raises SignalRefused, InvalidMessage, InvalidName.

        `early`: seconds for which it is kept for a message of which nothing is known; None: it is refused.
        """
        check_id(identity)
        check_step_name(name, "signal")
        stored, every = stored_signal(value), (yield from self._every())
        answers: dict[str, str] = {}
        token, first_asked = secrets.token_hex(8), {one.queue for one in every}

        def ask(homes: list[QueueKeys], kept: float | None) -> Steps[None]:
            counting = homes[0] if _EARLY.isdisjoint(answers.values()) else None
            said = yield [
                own.signal(one, identity, name, stored, kept, one.call(token), counted=one is counting) for one in homes
            ]
            answers.update(zip((one.queue for one in homes), said, strict=True))

        if len(every) > 1 or early is None:  # which one has the message is known if one of them knows anything of it
            yield from ask(every, None)
            if len(every) > 1 and _nobody_knows(answers.values()):  # it was on its way from one to another
                yield from ask(every, None)
        while _may_come(answers.values(), early):
            missing = [one for one in every if answers.get(one.queue, "unknown") == "unknown"]
            if missing:  # those that an earlier call has not reached get it too
                yield from ask(missing, early or EARLY)
            known = {one.queue for one in every}
            # A home that was added meanwhile has got the early signals that the first one had before.
            every = yield from self._every(fresh=0.0)
            if {one.queue for one in every} <= known:
                break
        # And it may have got this one.
        said = [answer for home, answer in answers.items() if home in first_asked or answer != "early before"]
        return _taken(self._homes.queue, identity, name, said)

    def _every(self, **freshness: float) -> Steps[list[QueueKeys]]:
        """Return all homes: a signal that one of them does not get may be the one that its message waits for."""
        return [one.keys for one in (yield from self._homes.every(**freshness, complete=True))]

    def by_link(self, token: str, value: object) -> Steps[bool]:
        """Give the signal of a link; raises SignalRefused."""
        refused = SignalRefused("this link is not valid, or its message has ended", "unknown")
        try:
            identity, name, secret = read_token(token).decode().split("\n")
            check_id(identity)
        except (ValueError, InvalidName):
            raise refused from None
        for home in (yield from self._homes.every(complete=True)):
            recorded = yield own.recorded(home.keys, identity)
            links = [one for one in recorded.entries if one.name == link_name(name) and one.kind == "s"]
            if links and hmac.compare_digest(str(read_result(links[0].value)).encode(), secret.encode()):
                return (yield from self.give(identity, name, value, None))
        raise refused


#: What homes answer, first what only the one says that has the message, or had it.
_KNOWN = ("given", "late", "ended", "before", "kept", "early before", "early", "unknown")
_EARLY = {"early before", "early"}
_ONLY_EARLY = {*_EARLY, "unknown"}


def _nobody_knows(answers: Collection[str]) -> bool:
    return set(answers) == {"unknown"}


def _may_come(answers: Collection[str], early: float | None) -> bool:
    """Whether the message may come to any home: it is on its way, or not known at all."""
    return set(answers) <= _ONLY_EARLY and not (early is None and _nobody_knows(answers))


def _taken(queue: str, identity: str, name: str, answers: Collection[str]) -> bool:
    said = min(answers, key=_KNOWN.index)
    if said in REFUSED:
        raise SignalRefused(f"message {identity} of {queue!r} does not take the signal {name!r}: {REFUSED[said]}", said)
    return said not in ("before", "early before")


def give_anywhere(homes_of: Callable[[str], QueueHomes], identity: str, name: str, value: object) -> Steps[bool]:
    """Give a signal to a message of any queue, the first that takes it, and rather to one that waits.

    Several queues have a message with this id if it was published. Raises as `SignalSteps.give`.
    """
    check_id(identity)
    check_step_name(name, "signal")
    refused = SignalRefused(f"signal {name!r} for message {identity}: {REFUSED['unknown']}", "unknown")
    waiting: list[str] = []
    others: list[str] = []
    for some in pieces(sorted((yield ops.queue_names())), _PAGE):
        known = yield [op for one in some for op in own.is_known(QueueKeys(one), identity)]
        for queue, parked, recorded in zip(some, known[::2], known[1::2], strict=True):
            if parked or recorded:
                (waiting if parked else others).append(logical_name(queue))
    for queue in dict.fromkeys([*waiting, *others]):
        try:
            return (yield from SignalSteps(homes_of(queue)).give(identity, name, value, None))
        except SignalRefused as error:
            refused = error
    raise refused
