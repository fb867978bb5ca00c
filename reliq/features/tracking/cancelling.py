"""The steps that cancel messages in one home of their queue, wherever they are."""

import math
from collections.abc import Iterable, Mapping

from reliq import ops
from reliq.contract.values import check_id
from reliq.errors import InvalidSetting, OutcomeUnknown
from reliq.features.tracking import ops as own
from reliq.features.tracking.locating import Locator, find_held, ready_places, start_of
from reliq.features.tracking.model import Cancellation
from reliq.features.tracking.ops import Criterion, Swept
from reliq.model.found import CancelledMany
from reliq.model.keys import QueueKeys
from reliq.model.listed_message import Glimpse, ListedMessage
from reliq.model.outgoing import check_headers, check_key
from reliq.ops import Steps, Stray
from reliq.ops.schema import Counter
from reliq.protocol.features import HANDLED, HIDDEN, Hidden
from reliq.protocol.listing import read_letter
from reliq.protocol.progress import Progress, unwatched
from reliq.protocol.relocation import withdraw
from reliq.protocol.reports import forget_reports

_PASSES = 2  #: tries to cancel one message, which may move during the first


class Canceller:
    """One cancellation in one home of a queue."""

    def __init__(self, keys: QueueKeys) -> None:
        self.keys = keys
        self._told_at_home = 0  #: messages that waited here for a monitor, and that a consumer of their home holds now

    def cancel(self, identity: str) -> Steps[Cancellation]:
        """Remove the message if it is not in processing; else tell its consumer."""
        wanted, lost, call = Criterion.with_id(check_id(identity)), None, self.keys.new_call()
        for _ in range(_PASSES):
            try:
                if (yield from self._remove(identity, wanted, call)):
                    return Cancellation.CANCELLED
            except OutcomeUnknown as error:  # if the message is still there, the next pass removes it
                lost = error
            if self._told_at_home or (yield from self._tell(wanted)):
                return Cancellation.TOLD
            if (yield from self._has_ended(identity)):
                return Cancellation.DONE
        if lost is not None:
            raise lost
        return Cancellation.UNKNOWN

    def _remove(self, identity: str, wanted: Criterion, call: str) -> Steps[bool]:
        """Remove a message that is not in processing; return whether it was there. Raises OutcomeUnknown."""
        now = yield ops.server_time()
        if (yield ops.cancel(self.keys, identity, call)) or (yield from self._withdraw(identity, call)):
            yield from forget_reports(self.keys, {identity: now})
            return True
        return (yield from self._sweep(ready_places(self.keys), wanted, removals=1, at_most=1, call=call)) > 0

    def _has_ended(self, identity: str) -> Steps[bool]:
        """Whether the message is a dead letter, or a feature or its history says that it was handled."""
        if (yield from read_letter(self.keys, identity)) is not None:
            return True
        for was_handled in HANDLED:
            if (yield from was_handled(self.keys, identity)):
                return True
        history = yield from Locator(self.keys).history(identity)
        return bool(history) and history[-1].name == Counter.ACKED

    def cancel_many(
        self, key: str | None, headers: Mapping[str, str] | None, dry_run: bool, progress: Progress = unwatched
    ) -> Steps[CancelledMany]:
        """Cancel the messages with a key, or with all of these headers; raises InvalidSetting without either."""
        wanted = _wanted(key, headers)
        if dry_run:
            cancelled = len((yield from self._hidden(wanted)))
            cancelled += yield from self._sweep(
                (self.keys.delayed, *ready_places(self.keys)), wanted, 0, progress=progress
            )
            return CancelledMany(cancelled, len((yield from find_held(self.keys, wanted))))
        cancelled = yield from self._withdraw_many(wanted)
        # Delayed ones twice: a retry may have gone there meanwhile; and a handler may have begun to wait.
        places = (self.keys.delayed, *ready_places(self.keys), self.keys.delayed)
        cancelled += yield from self._sweep(places, wanted, own.REMOVALS, progress=progress)
        told = self._told_at_home + (yield from self._tell(wanted))
        cancelled += yield from self._withdraw_many(wanted)
        return CancelledMany(cancelled, told)

    def _withdraw(self, identity: str, call: str) -> Steps[bool]:
        """Cancel a message that no consumer sees yet."""
        for hidden in HIDDEN:
            if (yield from hidden.withdraw(self.keys, identity, call)):
                return True
        return False

    def _hidden(self, wanted: Criterion) -> Steps[list[tuple[Hidden, str]]]:
        """Return the ids of the matching messages that no consumer sees."""
        found: dict[tuple[Hidden, str], None] = {}
        for hidden in HIDDEN:
            if hidden.listed is None:
                continue
            of_queue, element = hidden.listed
            cursor, more = 0, True
            while more:
                cursor, pairs = yield ops.scan_hash(of_queue(self.keys), cursor, own.SWEEP)
                some = [ListedMessage.read(self.keys.logical, Glimpse(element(stored))) for _, stored in pairs]
                found |= dict.fromkeys((hidden, one.id) for one in some if wanted.fits(one))
                more = cursor > 0
        return list(found)

    def _withdraw_many(self, wanted: Criterion) -> Steps[int]:
        """Cancel the matching messages that no consumer sees; return how many."""
        now: int = yield ops.server_time()
        gone: list[str] = []
        for hidden, identity in (yield from self._hidden(wanted)):
            if (yield from hidden.withdraw(self.keys, identity, self.keys.new_call())):
                gone.append(identity)
        yield from forget_reports(self.keys, dict.fromkeys(gone, now))
        return len(gone)

    def _sweep(
        self,
        places: Iterable[str],
        wanted: Criterion,
        removals: int,
        at_most: float = math.inf,
        progress: Progress = unwatched,
        call: str | None = None,
    ) -> Steps[int]:
        """Count the matching messages of these places, until `at_most`; each call removes up to `removals` of them.

        `call`: of `new_call`: once calls with it have removed something they do no more, and count that; None: each
        call has one of its own.
        """
        count, now = 0, 0
        if removals:
            now = yield ops.server_time()
        for place in places:
            start: bytes | int | None = start_of(self.keys, place)
            while start is not None and count < at_most:
                token = (call or self.keys.new_call()) if removals else None
                swept: Swept = yield own.sweep(self.keys, place, start, wanted, removals, token)
                count += len(swept.matches)
                start = swept.following
                for match in swept.matches:
                    if match.stray and not (yield from self._withdraw_stray(match.id, match.stray)):
                        count -= 1
                if removals:
                    yield from forget_reports(self.keys, dict.fromkeys(self._started(swept), now))
                if count:
                    progress(count)
        return count

    def _withdraw_stray(self, identity: str, stray: Stray) -> Steps[bool]:
        """Cancel a message that a monitor takes to another home: here, or there if it has come."""
        withdrawn = yield from withdraw(self.keys, [stray], Counter.CANCELLED)
        if not withdrawn.come:
            return True
        (home,) = withdrawn.come
        outcome = yield from Canceller(QueueKeys(home)).cancel(identity)
        self._told_at_home += outcome == Cancellation.TOLD
        return outcome == Cancellation.CANCELLED

    def _started(self, swept: Swept) -> list[str]:
        """Return the ids of those messages that a handler may have reported about."""
        return [
            match.id
            for match in swept.matches
            if not match.glimpse.element or ListedMessage.read(self.keys.logical, match.glimpse).was_started
        ]

    def _tell(self, wanted: Criterion) -> Steps[int]:
        """Note for the consumers of matching messages that these are cancelled; return how many they hold."""
        told = 0
        for consumer, match in (yield from find_held(self.keys, wanted)):
            sent = ListedMessage.read(self.keys.logical, match.glimpse).enqueued_at
            told += yield own.tell(self.keys, consumer, match.id, sent)
        return told


def cancel_with(keys: QueueKeys, headers: Mapping[str, str]) -> Steps[None]:
    """Cancel the messages of one home with all of these headers."""
    yield from Canceller(keys).cancel_many(None, headers, dry_run=False)


def _wanted(key: str | None, headers: Mapping[str, str] | None) -> Criterion:
    if (key is None) == (headers is None):
        raise InvalidSetting("give key or headers: messages with all of these headers are cancelled")
    if key is not None:
        return Criterion.with_key(check_key(key))
    wanted = check_headers(headers or {})
    if not wanted:
        raise InvalidSetting("headers is empty: every message has them all; to remove all messages, use purge")
    return Criterion.with_headers(wanted)
