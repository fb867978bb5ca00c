"""The steps that look for a text in the messages of a queue: in parts, and in a bounded number of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from reliq import ops
from reliq.contract.values import unicode_text, whole
from reliq.errors import InvalidSetting
from reliq.features.tracking.hits import Hit, Hits, where_is
from reliq.features.tracking.model import Found
from reliq.features.tracking.ops import flow_waited_for
from reliq.features.tracking.search_ops import search
from reliq.model.dead_letter import DeadLetter
from reliq.model.delayed_message import DelayedMessage
from reliq.model.found import Place
from reliq.model.keys import QueueKeys
from reliq.model.listed_message import Glimpse, ListedMessage
from reliq.ops import Steps
from reliq.protocol.homes import QueueHomes

PLACES = (Place.READY, Place.DELAYED, Place.DEAD)
MOST = 200_000  #: messages that are looked at: about a second
MOST_BYTES = 512 * 1024 * 1024  #: of elements and bodies
LONGEST = 1000  #: characters of a text
_SHOWN = 2048  #: bytes of a body in its element: nearly all of them have less


@dataclass(frozen=True, slots=True)
class TextSearch:
    """A text to look for, in the messages of these places, until `limit` have it or `most` were looked at."""

    text: str
    places: Sequence[Place]
    limit: int
    most: int

    @classmethod
    def checked(cls, text: str, place: str | None, limit: int, most: int) -> "TextSearch":
        """Check what a user has given; raises InvalidSetting."""
        if not 1 <= len(unicode_text(text, "text")) <= LONGEST:
            raise InvalidSetting(f"text is {len(text):,} characters long: give 1 to {LONGEST:,} characters")
        if place is not None and place not in PLACES:
            raise InvalidSetting(f"place is {place!r}: give one of {', '.join(PLACES)}")
        places = PLACES if place is None else (Place(place),)
        return cls(text, places, whole(limit, "limit", 1, 1000), whole(most, "most", 1, 10_000_000))

    def of_queue(self, homes: QueueHomes) -> Steps[Hits]:
        """Look through all homes of a queue, each as far as its share of `most` goes."""
        count = len((yield from homes.every()))
        share = TextSearch(self.text, self.places, self.limit, max(1, self.most // count))
        found = yield from homes.each(lambda keys: share.of_home(keys, MOST_BYTES // count))
        hits = list(chain(*(one.hits for one in found)))[: self.limit]
        looked, total = sum(one.looked for one in found), sum(one.total for one in found)
        return Hits(hits, looked, total, sum(one.unread for one in found))

    def of_home(self, keys: QueueKeys, most_bytes: int) -> Steps[Hits]:
        """Look through one home, the smallest place first: what it leaves of its share goes to the others."""
        sizes = yield from self._sizes(keys)
        hits, looked, unread, bytes_read = dict[str, Hit](), 0, 0, 0
        for index, (size, place, key) in enumerate(sizes):
            until, start = looked + min(size, (self.most - looked) // (len(sizes) - index)), 0
            while looked < until and bytes_read < most_bytes and len(hits) < self.limit:
                seen = yield search(keys, key, start, self.text.encode(), until - looked, _SHOWN)
                looked, unread, bytes_read = looked + seen.looked, unread + seen.unread, bytes_read + seen.read
                for glimpse, apart in seen.matches:
                    hit = self._hit(keys, place, glimpse, apart)
                    if hit is not None:
                        hits.setdefault(hit.found.id, hit)
                if seen.following is None:
                    break
                start = seen.following
        yield from self._note_flows(keys, hits)
        total = sum(size for size, *_ in sizes)
        return Hits([*hits.values()][: self.limit], min(looked, total), total, unread)

    def _sizes(self, keys: QueueKeys) -> Steps[list[tuple[int, Place, str]]]:
        """Return the places that have messages, with their keys, the smallest first."""
        places = [(Place.DELAYED, keys.delayed), (Place.DEAD, keys.dead)]
        places += [(Place.READY, one) for one in ops.ready_lists(keys)] + [(Place.WAITING, keys.waiting)]
        wanted = {*self.places, *((Place.WAITING,) if Place.READY in self.places else ())}
        places = [one for one in places if one[0] in wanted]
        sorted_sets = (Place.DELAYED, Place.DEAD, Place.WAITING)
        reads = [ops.zset_size(key) if place in sorted_sets else ops.list_length(key) for place, key in places]
        counts = yield [*reads]
        return sorted((count, place, key) for count, (place, key) in zip(counts, places, strict=True) if count)

    def _note_flows(self, keys: QueueKeys, hits: dict[str, Hit]) -> Steps[None]:
        """Note of those that wait which wait for messages of their flow, whatever their key."""
        waiting = [one.found for one in hits.values() if one.found.place is Place.WAITING]
        flows = (yield [flow_waited_for(keys, one.id) for one in waiting]) if waiting else ()
        for one, flow in zip(waiting, flows, strict=True):
            if flow:
                hits[one.id] = replace(hits[one.id], found=replace(one, waiting_for="", waiting_for_flow=flow))

    def _hit(self, keys: QueueKeys, place: Place, glimpse: Glimpse, apart: bytes) -> Hit | None:
        message = _KINDS.get(place, ListedMessage).read(keys.logical, glimpse)
        where = where_is(self.text, message, apart)
        if where is None:
            return None
        match message:
            case DelayedMessage():
                found = Found(keys.logical, message.id, place, message, due_at=message.due_at)
            case DeadLetter():
                found = Found(keys.logical, message.id, place, message, died_at=message.died_at, reason=message.reason)
            case _:
                waiting_for = message.key or message.limit_key if place is Place.WAITING else ""
                found = Found(keys.logical, message.id, place, message, waiting_for=waiting_for)
        return Hit(found, *where)


_KINDS: dict[Place, type[ListedMessage]] = {Place.DELAYED: DelayedMessage, Place.DEAD: DeadLetter}
