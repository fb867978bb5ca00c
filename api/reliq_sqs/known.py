"""What the endpoint knows of a queue, read from its hash: attributes, tags and times."""

from collections.abc import Mapping
from dataclasses import dataclass

from reliq.model.outgoing import NewMessage
from reliq_sqs import redrive
from reliq_sqs.attributes import ATTRIBUTES, described
from reliq_sqs.names import Names, Place
from reliq_sqs.redrive import Redrive

ATTRIBUTE, TAG = "attribute ", "tag "  #: what the fields of the hash begin with
CREATED, MODIFIED, PURGED = "created", "modified", "purged"  #: other fields: seconds since the epoch
FAIR = "fair"  #: exists after a message with a group was sent to a standard queue
SCOPE = "scope"  #: after a change of DeduplicationScope: until when the former one holds, and what it is
WINDOW = 300.0  #: seconds for which FIFO queues know deduplication ids
_SCOPE_CHANGES_IN = 60  #: seconds, which AWS takes for a change of attributes


@dataclass(frozen=True, slots=True)
class SqsQueue:
    """A queue that exists."""

    place: Place
    arn: str
    queue: str  #: reliq's name
    fifo: bool
    attributes: Mapping[str, str]  #: those that were set
    tags: Mapping[str, str]
    created: int
    modified: int
    purged: int
    fair: bool
    redrive: Redrive | None
    visibility: int
    delay: int
    retention: int
    wait: int
    largest: int
    by_content: bool  #: whether a message without a deduplication id has that of its body
    scope: str  #: of deduplication ids: queue, or messageGroup
    scope_before: str
    scope_from: int  #: when this scope begins to hold
    alike: NewMessage  #: with the options of all messages sent to it

    @property
    def buries(self) -> Redrive | None:
        """Where messages go that were received too often. Those of a queue that is its own target stay."""
        return None if self.redrive is None or self.redrive.target == self.place else self.redrive

    def deduplicates_by_group(self, now: float) -> bool:
        """Whether deduplication ids are of their group, at a time in seconds since the epoch."""
        return (self.scope if now >= self.scope_from else self.scope_before) == "messageGroup"

    def described(self) -> dict[str, str]:
        """Return the attributes as a caller sees them, without counts."""
        return {
            **described(self.attributes, self.fifo),
            "QueueArn": self.arn,
            "CreatedTimestamp": str(self.created),
            "LastModifiedTimestamp": str(self.modified),
        }


def read(record: Mapping[str, str], place: Place, names: Names) -> SqsQueue:
    """Return the queue that a record describes; an empty record is that of a queue with default attributes."""
    attributes = {name.removeprefix(ATTRIBUTE): value for name, value in record.items() if name.startswith(ATTRIBUTE)}

    def number(name: str) -> int:
        return int(attributes.get(name) or ATTRIBUTES[name].default or 0)

    scope_from, _, scope_before = record.get(SCOPE, "0 queue").partition(" ")
    retention, delay = number("MessageRetentionPeriod"), number("DelaySeconds")
    return SqsQueue(
        place,
        names.arn(place),
        names.queue(place),
        place.fifo,
        attributes,
        {name.removeprefix(TAG): value for name, value in record.items() if name.startswith(TAG)},
        created=int(record.get(CREATED, 0)),
        modified=int(record.get(MODIFIED, 0)),
        purged=int(record.get(PURGED, 0)),
        fair=FAIR in record,
        redrive=redrive.stored(attributes.get("RedrivePolicy"), names),
        visibility=number("VisibilityTimeout"),
        delay=delay,
        retention=retention,
        wait=number("ReceiveMessageWaitTimeSeconds"),
        largest=number("MaximumMessageSize"),
        by_content=attributes.get("ContentBasedDeduplication") == "true",
        scope=attributes.get("DeduplicationScope", "queue"),
        scope_before=scope_before,
        scope_from=int(scope_from),
        alike=NewMessage(b"", ttl=float(retention), delay=float(delay), window=WINDOW),
    )


def scope_from(now: SqsQueue, wanted: Mapping[str, str], seconds: int) -> dict[str, str]:
    """Return the field that delays a change of the scope of deduplication, if there is one."""
    if wanted.get("DeduplicationScope", now.scope) == now.scope:
        return {}
    holds = "messageGroup" if now.deduplicates_by_group(seconds) else "queue"
    return {SCOPE: f"{seconds + _SCOPE_CHANGES_IN} {holds}"}
