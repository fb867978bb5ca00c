"""The options of a message: what every call that sends takes, and where else each of them shows.

An entry is all there is to say about an option. Made from it: keywords (`reliq.contract.keywords`, generated), flags
of the command line, HTTP members and headers, fields of the dashboard, the SQL outbox. Columns of Spark and the
mapping of kombu are compared with it. What a surface leaves out stands in `left_out`, with the reason: a test fails
for a surface that neither shows nor leaves out an option.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from reliq.contract.kinds import Choice, Duration, Flag, Headers, Identity, Kind, Text, Tokens
from reliq.contract.values import MAX_COST, PRIORITIES

#: Calls and surfaces that take options of a message.
SEND, SEND_MANY, PUBLISH, SCHEDULE = "send", "send_many", "publish", "schedule"
SPARK, OUTBOX, FORM, KOMBU = "spark", "outbox", "form", "kombu"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a message."""

    name: str
    kind: Kind
    text: str  #: what it does, as part of a sentence
    default: Any = None  #: as a caller may give it; None: not set
    example: str = ""
    label: str = ""  #: above the dashboard's field
    nullable: bool = True  #: whether a caller may give None
    left_out: Mapping[str, str] = field(default_factory=dict)  #: surface: why it does not take the option

    @property
    def hint(self) -> str:
        """What an empty field of a form shows."""
        return f"such as {self.example}" if self.example else ""

    @property
    def flag(self) -> str:
        """The option of the command line, and the end of the HTTP header."""
        return self.name.replace("_", "-")


_ONE_ID = "each message of the call has an id of its own"
_TICK_ID = "a tick is known by the id of its message"
_ONE_QUEUE = "each queue would have its own first message"
_PER_MESSAGE = "each message of the call would need its own: give NewMessage objects"
_TICK_ONCE = "a tick is sent once by its id"
_ROW_ONCE = "a row is sent once by its id, which is its deduplication key"
_NO_AMQP = "AMQP's messages have nothing of the kind"
_DEDUP = {
    SEND_MANY: _PER_MESSAGE, PUBLISH: _ONE_QUEUE, SCHEDULE: _TICK_ONCE, OUTBOX: _ROW_ONCE, KOMBU: _NO_AMQP,
}  # fmt: skip
_LATEST = {**_DEDUP, SPARK: "rows of one job that replace each other would depend on the order of its tasks"}

_CLOCK = Duration(shortest=0.001)

OPTIONS: Final = (
    Option(
        "delay", Duration(), "how long the message stays invisible", 0, "10s", "Delay", nullable=False,
        left_out={SCHEDULE: "a tick has a time of its own"},
    ),
    Option("headers", Headers(), "texts by name, stored with the message, at most 16 KiB", label="Headers"),
    Option(
        "ttl", _CLOCK, "how long after sending it may still be started; later it becomes a dead letter (`expired`)",
        example="1h", label="Time to live",
    ),
    Option(
        "key", Text(), "messages with the same key run one at a time and in order; a delayed one joins when it is "
        "due, and a failing one delays only its own key",
        example="customer-7", label="Key", left_out={KOMBU: _NO_AMQP},
    ),
    Option(
        "limit_key", Text(), "the tenant, account or host whose limits apply; by default the ordering `key`",
        example="tenant-7", label="Limit key",
        left_out={KOMBU: _NO_AMQP, SPARK: "the encoder of rows has no lane for it yet: `key` has limits too"},
    ),
    Option(
        "cost", Tokens(0, MAX_COST), "how much of `rate` and `key_rate` it takes when it starts, such as the tokens of "
        "a language model; `message.charge` corrects it", 1, "3000", "Cost", nullable=False,
        left_out={KOMBU: _NO_AMQP, SPARK: "the encoder of rows has no field for it yet"},
    ),
    Option(
        "priority", Choice(PRIORITIES), "workers claim 16 high, 4 normal and 1 low while all three wait", "normal",
        label="Priority", nullable=False,
    ),
    Option(
        "id", Identity(), "its id; a new UUIDv7 by default", label="Id",
        left_out={SEND_MANY: _ONE_ID, SCHEDULE: _TICK_ID, KOMBU: "kombu's tags are not unique"},
    ),
    Option(
        "dedup_key", Text(longest=None), "within `window`, a second message with this key is not enqueued, and the "
        "call returns the id of the first", example="order-1", label="Deduplication key", left_out=_DEDUP,
    ),
    Option(
        "window", _CLOCK, "how long `dedup_key` holds", "10m", "1h", "Deduplicated for", nullable=False,
        left_out={**_DEDUP, SPARK: "an option of the job, `dedupWindow`"},
    ),
    Option(
        "replace", Flag(), "instead, the new message replaces the waiting one with this `dedup_key` (the latest wins); "
        "`window` has no effect then", default=False, label="Replace", nullable=False, left_out=_LATEST,
    ),
    Option(
        "debounce", _CLOCK, "with `replace`: how long the message is delayed while no newer one comes",
        example="5s", label="Debounce", left_out=_LATEST,
    ),
    Option(
        "at_most", _CLOCK, "with `debounce`: the longest delay after the first message",
        example="1m", label="Debounce at most", left_out=_LATEST,
    ),
)  # fmt: skip

BY_NAME: Final = {option.name: option for option in OPTIONS}


@cache
def options_of(surface: str) -> tuple[Option, ...]:
    """Return the options that a call or another surface takes."""
    return tuple(option for option in OPTIONS if surface not in option.left_out)


def given(values: Mapping[str, Any], surface: str) -> Any:
    """Return the options of a surface among some values; None stands for the default. They fit NewMessage."""
    return {one.name: value for one in options_of(surface) if (value := values.get(one.name)) is not None}
