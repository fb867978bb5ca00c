"""The steps that find messages by id, and cancel them by id, key or headers, in a queue with all of its homes."""

from collections.abc import Mapping

from reliq.features.tracking.cancelling import Canceller
from reliq.features.tracking.hits import Hits
from reliq.features.tracking.locating import Locator
from reliq.features.tracking.model import Cancellation, Found
from reliq.features.tracking.text_search import TextSearch
from reliq.model.found import CancelledMany, Place
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.protocol.done_in_part import counted
from reliq.protocol.homes import QueueHomes
from reliq.protocol.progress import Progress, unwatched

_CANCELLATION = "the cancellation"


class Tracking:
    """The operations on single messages of one queue with all of its homes."""

    def __init__(self, homes: QueueHomes) -> None:
        self.homes = homes

    def find(self, identity: str) -> Steps[Found | None]:
        """Return where a message is; None if it is unknown."""
        found = yield from self.homes.any_of(lambda keys: Locator(keys).find(identity), lambda one: one is not None)
        there = [one for one in found if one is not None]
        return min(there, key=lambda one: one.place is Place.DONE, default=None)

    def search(self, text: str, place: str | None, limit: int, most: int) -> Steps[Hits]:
        """Return the messages that contain a text."""
        return (yield from TextSearch.checked(text, place, limit, most).of_queue(self.homes))

    def cancel(self, identity: str) -> Steps[Cancellation]:
        """Cancel a message, wherever it is."""
        order = [*Cancellation]
        ends = (Cancellation.CANCELLED, Cancellation.TOLD)
        answers = yield from self.homes.any_of(lambda keys: Canceller(keys).cancel(identity), lambda one: one in ends)
        return min(answers, key=order.index)

    def cancel_many(
        self, key: str | None, headers: Mapping[str, str] | None, dry_run: bool, progress: Progress = unwatched
    ) -> Steps[CancelledMany]:
        """Cancel the messages with a key, or with all of these headers; raises InvalidSetting without either."""
        cancelled: dict[str, int] = {}

        def progress_of(queue: str) -> Progress:
            def note(count: int) -> None:
                cancelled[queue] = count
                progress(sum(cancelled.values()))

            return note

        def cancel(keys: QueueKeys) -> Steps[CancelledMany]:
            with counted(_CANCELLATION, keys, lambda: 0 if dry_run else cancelled.get(keys.queue, 0)):
                return (yield from Canceller(keys).cancel_many(key, headers, dry_run, progress_of(keys.queue)))

        homes = self.homes
        answers = yield from (homes.each(cancel) if dry_run else homes.act(_CANCELLATION, cancel))
        return CancelledMany(sum(one.cancelled for one in answers), sum(one.told for one in answers))
