"""The counters of a queue: how often something has happened since the queue exists.

An entry is all there is to say about a counter. Made from it: the names that Python uses
(`reliq.contract.counter_names`, generated), the metrics of Prometheus, the page of the reference, the equation of the
audit, the dashboard's list. What is no metric says why in `left_out`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from reliq.contract.outcomes import DEAD_LETTERED, REASONS


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter: a field of the hash `counters`."""

    name: str
    text: str  #: what it counts, as part of a sentence
    metric: str = ""  #: its name for Prometheus, without `_total`
    left_out: str = ""  #: why it is no metric
    enters: int = 0  #: in the audit: 1 for messages that came in, -1 for those that have left for good
    of_places: bool = False  #: whether it is of places in the lists of a home, and goes with them
    event: str = ""  #: whether the history of a message notes it: STAYS or ENDS
    see: str = ""  #: a link from docs/reference to the page that says more

    @property
    def help(self) -> str:
        """What it counts, as a sentence."""
        return f"{self.text[0].upper()}{self.text[1:]}."


#: What the history notes: after the event the message is in the queue, or not any more.
STAYS, ENDS = "stays", "ends"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


COUNTERS: Final = (
    Counter(
        "enqueued", "messages accepted, also delayed and prepared ones, but not duplicates", "reliq_messages_enqueued",
        enters=1, event=STAYS,
    ),
    Counter("deduplicated", "sends answered with the id of an earlier message", "reliq_messages_deduplicated"),
    Counter(
        "dedup_conflicts", "duplicates with another body than the first message of their deduplication key",
        "reliq_dedup_conflicts",
    ),
    Counter(
        "rejected", "messages refused because of `max_length` or `max_bytes` (refusals by a full Redis cannot be "
        "counted)", "reliq_messages_rejected",
    ),
    Counter(
        "confirms", "sends that asked for durability",
        left_out="it tells how programs send, not what happens to their messages",
    ),
    Counter(
        "claimed", "messages claimed by consumers, each time", "reliq_messages_claimed",
        event=STAYS,
    ),
    Counter("acked", "messages handled", "reliq_messages_acked", enters=-1, event=ENDS),
    Counter("retried", "failures that are retried", "reliq_messages_retried", event=STAYS),
    Counter(
        "requeued", "messages put back because their handler returned Again", "reliq_messages_requeued", event=STAYS
    ),
    Counter(
        "released", "messages that consumers handed back unstarted", "reliq_messages_released",
        event=STAYS,
    ),
    Counter(
        "reclaimed", "messages returned from dead consumers", "reliq_messages_reclaimed", event=STAYS
    ),
    Counter(
        "returned", "messages in flight that became visible again before they were deleted",
        "reliq_messages_returned", event=STAYS, see="[receive](../how-to/receive.md)",
    ),
    Counter(
        "slept", "messages delayed because their handlers sleep", "reliq_messages_slept", event=STAYS,
        see="[durable handlers](../how-to/durable.md)",
    ),
    Counter("parked", "messages put aside until they get a signal", "reliq_messages_parked", event=STAYS),
    Counter("signalled", "signals that messages were given", "reliq_messages_signalled", event=STAYS),
    Counter(
        "timed_out", "parked messages that got no signal in time", "reliq_messages_timed_out", event=STAYS
    ),
    Counter("promoted", "delayed messages that became ready", "reliq_messages_promoted"),
    Counter(
        DEAD_LETTERED, f"messages that died, by reason: {_listed(REASONS)}", "reliq_messages_dead_lettered",
        event=STAYS,
    ),
    Counter("redriven", "dead letters put back into the queue", "reliq_messages_redriven", event=STAYS),
    Counter(
        "forwarded", "dead letters sent on to the queue of `dead_to`", "reliq_dead_letters_forwarded", enters=-1,
        event=ENDS,
    ),
    Counter("ordered", "times a message was put behind another one of its key", "reliq_messages_ordered"),
    Counter("prepared", "messages prepared, to be committed or rolled back", "reliq_messages_prepared"),
    Counter("committed", "prepared messages that entered the queue", "reliq_messages_committed"),
    Counter(
        "scheduled", "messages that schedules have sent", "reliq_schedule_fired",
        see="[schedules](../how-to/schedules.md)",
    ),
    Counter(
        "ticks_missed", "ticks for which no message was sent, by the catch-up policy of their schedule",
        "reliq_schedule_ticks_missed",
    ),
    Counter(
        "purged", "ready and delayed messages removed by an operator", "reliq_messages_purged", enters=-1,
        event=ENDS,
    ),
    Counter("purged_dead", "dead letters removed by an operator", "reliq_dead_letters_purged", enters=-1),
    Counter("trimmed", "dead letters removed by the queue's retention policy", "reliq_dead_letters_trimmed", enters=-1),
    Counter(
        "cancelled", "messages removed by a cancellation", "reliq_messages_cancelled", enters=-1, event=ENDS
    ),
    Counter(
        "withdrawn", "prepared messages that never entered: rolled back, or a duplicate then",
        "reliq_messages_withdrawn", enters=-1,
    ),
    Counter(
        "replaced", "messages that a newer one with their deduplication key replaced", "reliq_messages_replaced",
        enters=-1, event=ENDS, see="[latest wins](../how-to/flow.md#latest-wins)",
    ),
    Counter(
        "sent_home", "messages that a monitor took to the home of their key", enters=-1,
        event=STAYS,
        left_out="such a message stays in its queue",
    ),
    Counter(
        "blanks", "messages cancelled while they were ready: their places stay in the list until they are passed",
        left_out="it counts places in a list, not messages", of_places=True,
    ),
    Counter(
        "blanks_passed", "places of cancelled messages that were passed",
        left_out="it counts places in a list, not messages", of_places=True,
    ),
    Counter(
        "breaker_opened", "times the circuit breaker has opened", "reliq_breaker_opened",
        see="[breaker](../how-to/flow.md)",
    ),
    Counter(
        "lease_lost", "consumers that lost their lease while they lived, and registered again", "reliq_lease_lost"
    ),
    Counter("reclaim_conflicts", "messages settled and reclaimed at once; compensated", "reliq_reclaim_conflicts"),
)  # fmt: skip

BY_NAME: Final = {one.name: one for one in COUNTERS}

#: Events after which a message is not in the queue any more.
LAST_EVENTS: Final = frozenset(one.name for one in COUNTERS if one.event == ENDS)

#: Counters of messages that have left the queue for good.
GONE: Final = tuple(one.name for one in COUNTERS if one.enters < 0)


def balance(counts: Mapping[str, int]) -> int:
    """Return how many messages must be in a queue that has counted this."""
    return sum(one.enters * counts.get(one.name, 0) for one in COUNTERS if one.enters)
