"""The steps that give signals.

Which home of a queue has a message is not known. A signal is given to each, so that one of them has it when the
message comes, or is brought by a monitor; those that a message does not come to forget it after a day.
"""

import hmac
import secrets
from collections.abc import Callable, Collection, Sequence

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
from reliq.protocol.queue import QueueSteps
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
        giving = _Giving(self._homes.queue, identity, name, stored, {one.queue for one in every})
        if len(every) > 1 or early is None:  # which one has the message is known if one of them knows anything of it
            yield from giving.ask(every, None)
            if len(every) > 1 and giving.nobody_knows:  # it was on its way from one to another
                yield from giving.ask(every, None)
        while giving.may_come(early):
            if missing := giving.not_taken_by(every):  # those that an earlier call has not reached get it too
                yield from giving.ask(missing, early or EARLY)
            known = {one.queue for one in every}
            every = yield from self._every(fresh=0.0)
            if {one.queue for one in every} <= known:
                break
        return giving.is_taken()

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


class _Giving:
    """A signal that is given to the homes of a queue, and what each of them has answered."""

    #: What homes answer, first what only the one says that has the message, or had it.
    KNOWN = ("given", "late", "ended", "before", "many", "kept", "full", "early before", "early", "unknown")
    EARLY = frozenset({"early before", "early"})

    def __init__(self, queue: str, identity: str, name: str, stored: bytes, first_homes: Collection[str]) -> None:
        self._queue = queue
        self._identity = identity
        self._name = name
        self._stored = stored
        self._token = secrets.token_hex(8)
        self._first_homes = first_homes
        self._answers: dict[str, str] = {}  #: by home

    def ask(self, homes: Sequence[QueueKeys], kept: float | None) -> Steps[None]:
        """Give it to homes; `kept`: seconds for which one that does not know the message keeps it; None: not at all."""
        counting = homes[0] if self.EARLY.isdisjoint(self._answers.values()) else None
        answers = yield [
            own.signal(
                one, self._identity, self._name, self._stored, kept, one.call(self._token), counted=one is counting
            )
            for one in homes
        ]
        self._answers.update(zip((one.queue for one in homes), answers, strict=True))

    def not_taken_by(self, homes: Sequence[QueueKeys]) -> list[QueueKeys]:
        """Return the homes that were not asked, or know nothing of the message and do not keep the signal."""
        return [one for one in homes if self._answers.get(one.queue, "unknown") == "unknown"]

    @property
    def nobody_knows(self) -> bool:
        """Whether the homes know nothing of the message."""
        return set(self._answers.values()) == {"unknown"}

    def may_come(self, early: float | None) -> bool:
        """Whether the message may come to any home: it is on its way, or not known at all."""
        return {*self._answers.values()} <= {*self.EARLY, "unknown"} and not (early is None and self.nobody_knows)

    def is_taken(self) -> bool:
        """Return False if the message has had the signal. Raises SignalRefused."""
        # A home that was added meanwhile has got the early signals that the first one had, maybe this one too.
        answers = [
            answer for home, answer in self._answers.items() if home in self._first_homes or answer != "early before"
        ]
        answer = min(answers, key=self.KNOWN.index)
        if answer in REFUSED:
            text = f"message {self._identity} of {self._queue!r} does not take the signal {self._name!r}: "
            raise SignalRefused(text + REFUSED[answer], answer)
        return answer not in ("before", "early before")


def give_anywhere(steps_of: Callable[[str], QueueSteps], identity: str, name: str, value: object) -> Steps[bool]:
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
            return (yield from SignalSteps(steps_of(queue).homes).give(identity, name, value, None))
        except SignalRefused as error:
            refused = error
    raise refused
