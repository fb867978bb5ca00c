"""What the endpoint knows of a queue, read from its hash: attributes, tags and times."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reliq_sqs import redrive
from reliq_sqs.attributes import ATTRIBUTES, described
from reliq_sqs.names import Names, Place
from reliq_sqs.redrive import Redrive

ATTRIBUTE, TAG = "attribute ", "tag "  #: what the fields of the hash begin with
CREATED, MODIFIED, PURGED = "created", "modified", "purged"  #: other fields: seconds since the epoch
FAIR = "fair"  #: exists after a message with a group was sent to a standard queue


@dataclass(frozen=True, slots=True)
class Known:
    """A queue that exists."""

    place: Place
    arn: str
    queue: str  #: reliq's name
    attributes: Mapping[str, str] = field(default_factory=dict)  #: those that were set
    tags: Mapping[str, str] = field(default_factory=dict)
    created: int = 0
    modified: int = 0
    purged: int = 0
    fair: bool = False
    adopted: bool = True  #: whether SQS knows it; otherwise it was made by Python or over HTTP
    redrive: Redrive | None = None
    visibility: int = 30
    delay: int = 0
    retention: int = 345_600
    wait: int = 0
    largest: int = 1_048_576
    by_content: bool = False  #: whether a message without a deduplication id has that of its body
    by_group: bool = False  #: whether deduplication ids are of their group

    @property
    def fifo(self) -> bool:
        return self.place.fifo

    def described(self) -> dict[str, str]:
        """Return the attributes as a caller sees them, without counts."""
        return {
            **described(self.attributes, self.fifo),
            "QueueArn": self.arn,
            "CreatedTimestamp": str(self.created),
            "LastModifiedTimestamp": str(self.modified),
        }


def read(record: Mapping[str, str], place: Place, names: Names) -> Known:
    """Return the queue that a record describes; an empty record is that of a queue with default attributes."""
    attributes = {name.removeprefix(ATTRIBUTE): value for name, value in record.items() if name.startswith(ATTRIBUTE)}

    def number(name: str) -> int:
        return int(attributes.get(name) or ATTRIBUTES[name].default or 0)

    return Known(
        place,
        names.arn(place),
        names.queue(place),
        attributes,
        {name.removeprefix(TAG): value for name, value in record.items() if name.startswith(TAG)},
        created=int(record.get(CREATED, 0)),
        modified=int(record.get(MODIFIED, 0)),
        purged=int(record.get(PURGED, 0)),
        fair=FAIR in record,
        adopted=CREATED in record,
        redrive=redrive.stored(attributes.get("RedrivePolicy"), names),
        visibility=number("VisibilityTimeout"),
        delay=number("DelaySeconds"),
        retention=number("MessageRetentionPeriod"),
        wait=number("ReceiveMessageWaitTimeSeconds"),
        largest=number("MaximumMessageSize"),
        by_content=attributes.get("ContentBasedDeduplication") == "true",
        by_group=attributes.get("DeduplicationScope") == "messageGroup",
    )
