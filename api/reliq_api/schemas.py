"""The schemas of requests and answers, for OpenAPI."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from reliq.model import settings as core
from reliq.model.dead_letter import REASONS
from reliq.model.schedule import MOST_CAUGHT_UP
from reliq_api.enqueue.entries import DURATION

QueueName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$", examples=["orders"])]
MessageId = Annotated[str, Field(pattern=r"^[!-~]{1,128}$", examples=["019aa4c2-7b1e-7c55-9d0e-3f0a7c5e1b2d"])]
# Never the id of a worker's consumer, which begins with c.
Lease = Annotated[str, Field(pattern=r"^h[0-9a-f]{20}(\.[0-9]{1,6})?$", examples=["h3f9c2d1e8a7b6c5d4e3f"])]


def _whole(value: Any) -> Any:
    """Accept 5.0 as a whole number, as JSON does; no other types."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


DeathReason = Literal["max_failures", "max_deliveries", "expired", "rejected", "decode", "undecided", "invalid"]
Whole = Annotated[int, BeforeValidator(_whole)]
Seconds = Annotated[float, Field(ge=0, le=core.MAX_DELAY_SECONDS, allow_inf_nan=False, examples=[30])]
Period = Seconds | Annotated[str, Field(pattern=DURATION, examples=["5m"])]


class Request(BaseModel):
    """The body of a request. Unknown members are refused: a misspelled option must not be ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


# --- messages --------------------------------------------------------------------------------------------------------


class NewMessage(Request):
    """A message to enqueue. Exactly one of `body` and `body_base64` is given."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"body": {"order": 1}, "delay": "10s", "headers": {"tenant": "a"}, "dedup_key": "order-1"}]
        }
    )

    body: Any = Field(None, description="A text is sent as its UTF-8, any other value as the JSON it is.")
    body_base64: str | None = Field(None, description="Bytes that are not text.")
    delay: Period | None = Field(None, description="How long it stays invisible.")
    headers: dict[str, str] | None = Field(None, description="Kept with the message, at most 16 KiB.")
    dedup_key: str | None = Field(
        None, min_length=1, description="Within `window`, only the first message with this key is enqueued."
    )
    window: Period | None = Field(None, description="How long `dedup_key` is remembered; default 10 minutes.")
    replace: bool = Field(
        default=False,
        description="It replaces the message with this `dedup_key` that waits; `window` has no meaning then.",
    )
    debounce: Period | None = Field(None, description="With `replace`: delay it while no newer one comes.")
    at_most: Period | None = Field(
        None, description="With `debounce`: how long after the first one the newest is due in any case."
    )
    ttl: Period | None = Field(None, description="How long it may still be started; later it becomes a dead letter.")
    id: MessageId | None = Field(None, description="Default: a new UUIDv7.")
    key: str | None = Field(
        None, min_length=1, max_length=core.MAX_KEY_BYTES, description="Messages with one key go one by one, in order."
    )
    limit_key: str | None = Field(
        None, min_length=1, max_length=core.MAX_KEY_BYTES, description="Shares the limits of this key, e.g. a tenant."
    )
    priority: Literal["high", "normal", "low"] | None = Field(None, description="Default: normal.")


class Enqueued(BaseModel):
    id: MessageId
    deduplicated: bool = Field(
        description="A duplicate: nothing was enqueued, and the id is that of the earlier message."
    )
    conflict: bool = Field(default=False, description="Present if true: that earlier message has another body.")


class BatchResult(BaseModel):
    """The result of one message of a batch, in the order of the batch."""

    status: Literal["enqueued", "deduplicated", "refused"]
    id: MessageId | None = None
    conflict: bool = Field(default=False, description="Present if true: the earlier message has another body.")
    code: str | None = Field(None, description="Why it was refused: an error code.", examples=["invalid_message"])
    detail: str | None = None


class BatchEnqueued(BaseModel):
    enqueued: int
    deduplicated: int
    refused: int
    results: list[BatchResult]


# --- leases ----------------------------------------------------------------------------------------------------------


class LeaseRequest(Request):
    limit: Whole = Field(1, ge=1, le=core.MAX_BATCH, description="The largest number of messages.")
    wait: float = Field(0, ge=0, le=30, allow_inf_nan=False, description="Seconds to wait for the first one.")
    lease: float = Field(
        core.LEASE,
        ge=core.MIN_LEASE_SECONDS,
        le=core.MAX_LEASE_SECONDS,
        allow_inf_nan=False,
        description="Seconds in which the messages must be settled, or the lease extended.",
    )
    encoding: Literal["auto", "text", "base64"] = Field(
        "auto",
        description="The form of bodies. auto: a JSON object or array as JSON, other UTF-8 as a text, else base64. "
        "text: never as JSON. base64: always base64.",
    )


class Leased(BaseModel):
    """One message. `encoding` is the form of `body`."""

    id: MessageId
    body: Any
    encoding: Literal["json", "text", "base64"]
    headers: dict[str, str]
    deliveries: int = Field(description="How many consumers vanished while they held it.")
    failures: int = Field(description="How many times handling it failed.")
    redelivered: bool = Field(description="A consumer vanished while it held it: it may have been handled already.")
    enqueued_at: int = Field(description="Ms since the epoch.")
    routing_key: str | None = None


class LeaseGiven(BaseModel):
    lease: Lease | None = Field(description="null if there was no message.")
    lease_seconds: float
    messages: list[Leased]


class RetryOf(Request):
    id: MessageId
    delay: Seconds | None = Field(None, description="Default: 5 s, 15 s, 45 s ... up to an hour.")
    error: str = Field("", max_length=core.MAX_ERROR_CHARACTERS, description="Kept in the message's history.")


class DeadOf(Request):
    id: MessageId
    reason: str = Field("", max_length=core.MAX_ERROR_CHARACTERS, description="Kept as its last error.")


class ReleaseOf(Request):
    id: MessageId
    delay: Seconds | None = None


class SettleRequest(Request):
    """Together at most 1,000 messages, each once."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"ack": ["a1"], "retry": [{"id": "b2", "delay": 60}]}]})

    ack: list[MessageId] = Field([], max_length=core.MAX_BATCH, description="Handled: gone for good.")
    retry: list[RetryOf] = Field(
        [],
        max_length=core.MAX_BATCH,
        description="Failed: tried again later; the eleventh failure ends in the dead letters.",
    )
    dead: list[DeadOf] = Field([], max_length=core.MAX_BATCH, description="To the dead letters, as `rejected`.")
    release: list[MessageId | ReleaseOf] = Field(
        [], max_length=core.MAX_BATCH, description="Handed back untouched: taken next, nothing counted."
    )


class Settled(BaseModel):
    id: MessageId
    code: Literal["done", "already", "lost"] = Field(
        description="already: not in this lease, so settled before. lost: the lease is over, others may have it."
    )


class SettleResult(BaseModel):
    results: list[Settled]


class ExtendRequest(Request):
    lease: float = Field(
        core.LEASE,
        ge=core.MIN_LEASE_SECONDS,
        le=core.MAX_LEASE_SECONDS,
        allow_inf_nan=False,
        description="Seconds from now.",
    )


class Extended(BaseModel):
    lease: Lease
    lease_seconds: float


# --- queues ----------------------------------------------------------------------------------------------------------


class QueueConfig(BaseModel):
    """A queue's policy; null: no limit."""

    max_length: int | None
    max_bytes: int | None
    max_deliveries: int
    dead_max_age: float | None
    dead_max_count: int | None
    paused: bool
    rate: str | None
    burst: int | None
    concurrency: int | None
    key_rate: str | None
    key_concurrency: int | None
    fair: bool
    weights: dict[str, int]


class ConfigChanges(Request):
    """Sets the given fields; null resets a field to its default."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_length": 100_000}]})

    max_length: Whole | None = Field(None, ge=1, le=10**12, description="Ready and delayed; above it: 429 queue_full.")
    max_bytes: Whole | None = Field(
        None,
        ge=core.MIN_QUOTA_BYTES,
        le=10**15,
        description="Redis' memory for ready and delayed messages; above it: 429 queue_full.",
    )
    max_deliveries: Whole | None = Field(None, ge=1, le=10_000, description="Consumers that may vanish with a message.")
    dead_max_age: float | None = Field(
        None, ge=1, le=core.MAX_DELAY_SECONDS, allow_inf_nan=False, description="Seconds a dead letter is kept."
    )
    dead_max_count: Whole | None = Field(None, ge=1, le=10**12, description="Dead letters kept, the latest.")
    rate: str | None = Field(
        None, max_length=32, description="Messages given out, over all consumers.", examples=["100/s"]
    )
    burst: Whole | None = Field(None, ge=1, le=1_000_000, description="Of these, how many at once.")
    concurrency: Whole | None = Field(None, ge=1, le=1_000_000, description="Messages in processing at once.")
    key_rate: str | None = Field(None, max_length=32, description="Messages of one key given out.", examples=["5/s"])
    key_concurrency: Whole | None = Field(None, ge=1, le=1000, description="Messages of one limit key at once.")
    fair: bool | None = Field(None, description="Take one message of each limit key after another.")
    weights: dict[str, Whole] | None = Field(None, description="By limit key: how many in its turn.", max_length=1000)


class QueueStats(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    queue: QueueName
    ready: int
    processing: int
    delayed: int
    dead: int
    prepared: int = Field(description="Invisible until their producers decide.")
    waiting: int = Field(description="Of the ready messages, those behind another message of their key.")
    oldest_ready_age: float = Field(description="Seconds.")
    consumers: int
    paused: bool
    limited_by: str = Field(description="Why nothing is given out now: held, breaker, rate, concurrency; else empty.")
    breaker: str = Field(description="closed, open or half_open.")
    counters: dict[str, int]


class QueueDetails(QueueStats):
    config: QueueConfig


class QueueList(BaseModel):
    queues: list[QueueStats]


class Paused(BaseModel):
    queue: QueueName
    paused: bool


class BreakerRequest(Request):
    state: Literal["open", "closed"]
    seconds: float = Field(3600.0, ge=0.1, le=core.MAX_DELAY_SECONDS, description="How long it is open.")


class Breaker(BaseModel):
    queue: QueueName
    breaker: str


class PurgeRequest(Request):
    confirm: QueueName = Field(description="The queue's name again: purged messages are gone for good.")


class Purged(BaseModel):
    removed: int


# --- topics ----------------------------------------------------------------------------------------------------------

# As paths can contain them: words that are not empty, without a slash, of valid Unicode. The library also
# takes others.
KEY = r"^[^\s./#*\ufffd]+(\.[^\s./#*\ufffd]+)*$"
RoutingKey = Annotated[str, Field(pattern=KEY, max_length=255, examples=["order.created.eu"])]
Pattern = Annotated[
    str,
    Field(
        pattern=r"^([^\s./#*\ufffd]+|\*|#)(\.([^\s./#*\ufffd]+|\*|#))*$", max_length=255, examples=["order.created.*"]
    ),
]


class Published(BaseModel):
    queues: dict[str, MessageId] = Field(
        description="The id of the message, by queue it is in.",
        examples=[{"mailer": "019aa4c2-7b1e-7c55-9d0e-3f0a7c5e1b2d"}],
    )


class TopicBinding(BaseModel):
    queue: QueueName
    pattern: str = Field(description="`*` is one word, `#` any number of words.", examples=["order.created.*"])


class BindingChanged(TopicBinding):
    changed: bool = Field(description="false: nothing changed.")


class TopicList(BaseModel):
    bindings: list[TopicBinding]
    alternate: str | None = Field(description="The queue for messages that match no pattern; null: none.")
    unroutable: int = Field(description="How many messages matched no queue.")


class TopicMatch(BaseModel):
    routing_key: str
    queues: list[str] = Field(description="The queues to which the key has rights.", examples=[["mailer"]])
    alternate: str | None = Field(description="The queue that gets the message because no pattern matches.")


# --- schedules -------------------------------------------------------------------------------------------------------

ScheduleName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$", examples=["report"])]
Moment = Annotated[str, Field(max_length=40, examples=["2026-11-21T10:00:00+01:00"])]


class ScheduleRequest(Request):
    """A schedule. At most one of `body` and `body_base64` is given; without one the body is empty."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"when": "0 7 * * MON-FRI", "tz": "Europe/Berlin", "body": {"kind": "daily"}, "jitter": "30s"}]
        }
    )

    when: str | float = Field(description="A cron expression of five fields, or an interval, as in `delay`.")
    tz: str = Field("UTC", max_length=64, description="The time zone of a cron expression.")
    body: Any = Field(None, description="A text is sent as its UTF-8, any other value as the JSON it is.")
    body_base64: str | None = Field(None, description="Bytes that are not text.")
    start: Moment | None = Field(None, description="No tick before; in `tz` unless it has an offset.")
    end: Moment | None = Field(None, description="No tick after.")
    jitter: Period = Field(0.0, description="Each tick is sent up to so much later.")
    catch_up: Literal["latest", "all", "none"] = Field("latest", description="What is sent for missed ticks.")
    catch_up_limit: Whole = Field(100, ge=1, le=MOST_CAUGHT_UP, description="For `all`: the latest so many.")
    headers: dict[str, str] | None = Field(None, description="Of each message, at most 16 KiB.")
    ttl: Period | None = Field(None, description="How long a message may still be started.")
    key: str | None = Field(None, min_length=1, max_length=core.MAX_KEY_BYTES, description="As of a message.")
    limit_key: str | None = Field(None, min_length=1, max_length=core.MAX_KEY_BYTES, description="As of a message.")
    priority: Literal["high", "normal", "low"] = "normal"


class Schedule(BaseModel):
    name: ScheduleName
    queue: QueueName
    when: str
    tz: str
    paused: bool
    ended: bool
    next_tick: str | None = Field(description="In the time zone of the schedule; null while it is paused or ended.")
    last_tick: str | None = Field(description="Of the latest run.")
    last_run_at: str | None
    last_id: str = Field(description="Of the latest message; empty before it, and if the latest ticks were missed.")
    lateness: float = Field(description="Seconds that the latest run was late.")
    fired: int = Field(description="Messages sent.")
    missed: int = Field(description="Ticks that were not sent.")
    start: str | None
    end: str | None
    jitter: float
    catch_up: str
    catch_up_limit: int


class ScheduleDetails(Schedule):
    next_ticks: list[str] = Field(description="The next ten.")
    fate: str = Field(
        description="Where the message of the latest run is: ready, processing, delayed, dead, gone (handled, or "
        "removed), unknown (in a queue too long to look); empty without one."
    )


class ScheduleList(BaseModel):
    schedules: list[Schedule]


class ScheduleTicks(BaseModel):
    ticks: list[str]


class ScheduleRemoved(BaseModel):
    removed: bool


class ScheduleRun(BaseModel):
    id: MessageId


# --- dead letters ----------------------------------------------------------------------------------------------------


class Filter(Request):
    """A selection of dead letters; all given conditions must hold."""

    ids: list[MessageId] | None = Field(None, min_length=1, max_length=core.MAX_BATCH)
    reason: DeathReason | None = None
    error_class: str | None = Field(None, max_length=200, description="Of the last error, with or without its module.")
    older_than: Period | None = Field(None, description="Dead for longer.")
    newer_than: Period | None = Field(None, description="Dead for less.")
    headers: dict[str, str] | None = None


class RedriveRequest(Filter):
    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "max_failures", "dry_run": True}]})

    limit: Whole = Field(10_000, ge=1, le=100_000, description="The largest number in this call.")
    dry_run: bool = False
    keep_failures: bool = Field(default=False, description="Do not reset their count of failures.")


class RedriveResult(BaseModel):
    matched: int
    redriven: int
    dry_run: bool
    stopped: str = Field(description="Why it ended before the last letter, or empty.")


class DeadPurgeRequest(Filter):
    all: bool = Field(default=False, description="All dead letters; needed if no other condition is given.")


class Failure(BaseModel):
    at: int
    worker: str
    error_class: str
    text: str


class DeadLetter(BaseModel):
    id: str
    queue: QueueName
    routing_key: str
    reason: str = Field(examples=list(REASONS))
    died_at: int = Field(description="Ms since the epoch.")
    enqueued_at: int
    failures: int
    deliveries: int
    headers: dict[str, str]
    size: int
    error_class: str
    error: str


class DeadLetterDetails(DeadLetter):
    body: Any
    encoding: Literal["json", "text", "base64"]
    errors: list[Failure]


class DeadLetterPage(BaseModel):
    letters: list[DeadLetter]
    next: str | None = Field(description="Give it as `after` for the next page; null at the end.")


# --- errors and health -----------------------------------------------------------------------------------------------


class ProblemDetails(BaseModel):
    """RFC 9457."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:reliq:problem:queue_full",
                    "title": "The queue is full",
                    "status": 429,
                    "detail": "queue 'orders' holds 1000 of at most 1000 messages; none of the 1 was enqueued",
                    "code": "queue_full",
                    "retry_after": 1,
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
    code: str


class Health(BaseModel):
    status: str
