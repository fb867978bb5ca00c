"""Compare what a Redis has with what the model says it must have."""

from collections.abc import Iterator

from reliq.contract.counters import COUNTERS
from reliq.contract.outcomes import REASONS
from tests.combine.seen import Seen, SeenQueue
from tests.reference import model, rules

#: Counters that the model does not predict: of places in lists, of the sending side, and of moves between partitions.
NOT_PREDICTED = {"blanks", "blanks_passed", "confirms", "sent_home", "breaker_opened"}

#: How a key is marked that messages in flight hold, all at once; their turns are behind it.
IN_FLIGHT = " "


def differences(system: model.System, seen: Seen, resized: bool) -> list[str]:
    """Return what is different; `resized`: the number of partitions has changed, which puts messages behind others."""
    found = []
    for name in system.queues.keys() | seen.queues.keys():
        queue, there = system.queue(name), seen.queues.get(name, SeenQueue())
        texts = [
            *_places(queue, there, resized),
            *_messages(queue, there),
            *_left_over(queue, there),
            *_flows(system, name, there),
        ]
        found += [f"{name}: {text}" for text in [*texts, *_counters(queue, there, resized)]]
    found += [f"batch {one} has ended" for one in system.batches if f"reliq:{{@batches}}:batch:{one}" not in seen.keys]
    expected = {one.id for one in system.flows.open}
    if seen.flows != expected:
        found.append(f"flows {sorted(seen.flows)} have not ended, not {sorted(expected)}")
    return found


def _places(queue: model.Queue, there: SeenQueue, resized: bool) -> Iterator[str]:
    for identity in sorted(queue.messages.keys() | there.places.keys()):
        message, places = queue.messages.get(identity), [place for place, _ in there.places.get(identity, [])]
        expected = [message.place] if message else []
        if resized:  # on its way to the home of its key
            places, expected = (
                [model.READY if one == model.WAITING else one for one in some] for some in (places, expected)
            )
        if places != expected:
            yield f"{identity} is in {places}, not in {expected}"


def _messages(queue: model.Queue, there: SeenQueue) -> Iterator[str]:
    for identity, message in queue.messages.items():
        for _, real in there.places.get(identity, []):
            facts = {
                "failures": (real.failures, message.failures), "deliveries": (real.deliveries, message.deliveries),
                "key": (real.key or "", message.options.get("key", "")),
                "batch": (real.extra.batch if real.extra else "", message.batch),
                "priority": (real.priority, message.options.get("priority", "normal")),
                "reason": (real.extra.reason if real.extra else "", message.reason),
            }  # fmt: skip
            for name, (is_so, must_be) in facts.items():
                if is_so != must_be:
                    yield f"{name} of {identity} is {is_so!r}, not {must_be!r}"
            for name, value in message.options.get("headers", {}).items():
                if real.headers.get(name) != value and "kombu" not in real.headers:
                    yield f"header {name} of {identity} is {real.headers.get(name)!r}"


def _counters(queue: model.Queue, there: SeenQueue, resized: bool) -> Iterator[str]:
    skipped = NOT_PREDICTED | ({"ordered"} if resized else set())
    counted = {**there.counters, "enqueued": there.counters["enqueued"] - there.counters["sent_home"]}
    for name in [*(one.name for one in COUNTERS), *(f"dead:{reason}" for reason in REASONS)]:
        if name not in skipped and counted.get(name, 0) != queue.counters[name]:
            yield f"counter {name} is {counted.get(name, 0)}, not {queue.counters[name]}"
    if gone := rules.missing(there.counters, sum(map(len, there.places.values()))):
        yield f"{gone} messages are missing in the counters"
    if there.counters["blanks"] - there.counters["blanks_passed"] != there.blanks:
        yield f"{there.blanks} blanks are in the lists, and the counters have others"


def _left_over(queue: model.Queue, there: SeenQueue) -> Iterator[str]:
    """What belongs to messages is there for those that are there, and for no others."""
    apart = sorted(
        bytes(real.extra.apart).hex()
        for places in there.places.values()
        for _, real in places
        if real.extra and real.extra.apart
    )
    if sorted(there.bodies) != apart:
        yield f"bodies are {sorted(there.bodies)}, not {apart}"
    by_id = sorted(one.id for one in queue.all(model.DELAYED, model.DEAD))
    if sorted(there.indexed) != by_id:
        yield f"the index has {sorted(there.indexed)}, not {by_id}"
    if sorted(there.prepared) != sorted(one.id for one in queue.all(model.PREPARED)):
        yield f"prepared are {there.prepared}"
    tracked = sorted(one for one in there.followed if one[0] not in " \n\t\v")
    live = sorted(
        one.id for one in queue.all(model.READY, model.WAITING, model.DELAYED, model.PROCESSING, model.PARKED)
    )
    if queue.settings["track"] and tracked != live:
        yield f"tracked are {tracked}, not {live}"
    if not queue.settings["track"] and tracked:
        yield f"tracked are {tracked}, without an index"
    holders = {
        one for name, one in there.active.items() if " " not in name and "#" not in name and one[:1] != IN_FLIGHT
    }
    holders |= {name.partition(" ")[2] for name in there.active if " " in name}
    if holders - set(live):
        yield f"keys are held by {sorted(holders - set(live))}, which have ended"


def _flows(system: model.System, queue: str, there: SeenQueue) -> Iterator[str]:
    """What is known of members of flows is known of those that are there, or whose handlers have opened flows."""
    waiting = sorted(one[1:] for one in there.followed if one.startswith("\v") and one[1] != "\v")
    held_back = sorted(one for one in system.queue(queue).messages if system.flows.waits(queue, one))
    if waiting != held_back:
        yield f"{waiting} wait for their flows, not {held_back}"
    known = sorted(one[2:] for one in there.followed if one.startswith("\v\v") and one[2:3] != "\v")
    members = sorted(system.flows.known(queue))
    if known != members:
        yield f"members of flows are {known}, not {members}"
