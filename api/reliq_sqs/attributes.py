"""The attributes of a queue: each one's values, default, and which queues have it."""

from collections.abc import Mapping
from dataclasses import dataclass

from reliq_sqs import policies
from reliq_sqs.errors import SqsError
from reliq_sqs.model import words

MOST_BYTES = 1_048_576  #: of a message with its attributes, and of a batch


@dataclass(frozen=True, slots=True)
class Number:
    """An attribute that is a whole number."""

    smallest: int
    largest: int
    default: str | None

    def accepts(self, value: str) -> bool:
        return value.isascii() and value.isdigit() and len(value) < 10 and self.smallest <= int(value) <= self.largest


@dataclass(frozen=True, slots=True)
class Word:
    """An attribute that is one of some words."""

    words: tuple[str, ...]
    default: str | None

    def accepts(self, value: str) -> bool:
        return value in self.words


@dataclass(frozen=True, slots=True)
class Text:
    """An attribute that is a text."""

    default: None = None

    def accepts(self, value: str) -> bool:
        return True


_FLAG = ("true", "false")
#: Seconds, which calls may give for their messages too.
VISIBILITY, DELAY, WAIT = Number(0, 43_200, "30"), Number(0, 900, "0"), Number(0, 20, "0")

ATTRIBUTES: Mapping[str, Number | Word | Text] = {
    "VisibilityTimeout": VISIBILITY,
    "DelaySeconds": DELAY,
    "MaximumMessageSize": Number(1024, MOST_BYTES, str(MOST_BYTES)),
    "MessageRetentionPeriod": Number(60, 1_209_600, "345600"),
    "ReceiveMessageWaitTimeSeconds": WAIT,
    "Policy": Text(),  # these three are checked in policies.py and redrive.py, which have errors of their own
    "RedrivePolicy": Text(),
    "RedriveAllowPolicy": Text(),
    "KmsMasterKeyId": Text(),
    "KmsDataKeyReusePeriodSeconds": Number(60, 86_400, None),
    "SqsManagedSseEnabled": Word(_FLAG, "true"),
    "FifoQueue": Word(_FLAG, "true"),
    "ContentBasedDeduplication": Word(_FLAG, "false"),
    "DeduplicationScope": Word(("queue", "messageGroup"), "queue"),
    "FifoThroughputLimit": Word(("perQueue", "perMessageGroupId"), "perQueue"),
}
KMS_REUSE = "300"  #: the default of KmsDataKeyReusePeriodSeconds, which only a queue with a key of KMS shows
_OF_THROUGHPUT = frozenset(("DeduplicationScope", "FifoThroughputLimit"))
OF_FIFO = frozenset(("FifoQueue", "ContentBasedDeduplication", *_OF_THROUGHPUT))
#: Attributes that an empty text removes.
REMOVABLE = frozenset(("Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId"))
COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_BOTH_KINDS_OF_ENCRYPTION = (
    "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
)


def unknown(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")


def invalid(name: str, reason: str = "") -> SqsError:
    why = f" Reason: {reason}" if reason else ""
    return SqsError("InvalidAttributeValue", f"Invalid value for the parameter {name}.{why}")


def checked(given: Mapping[str, str], fifo: bool) -> dict[str, str]:
    """Return the attributes that a caller may set, each with a possible value; raises SqsError.

    A name may have blanks around it, and a flag capitals, which some programs send.
    """
    found = {}
    for name, value in ((name.strip(), value) for name, value in given.items()):
        kind = ATTRIBUTES.get(name)
        if isinstance(kind, Word) and kind.words is _FLAG:
            value = value.lower()
        if kind is not None and name in _OF_THROUGHPUT and not fifo:
            raise SqsError("InvalidAttributeName", f"You can specify the {name} only when FifoQueue is set to true.")
        if kind is None or (name in OF_FIFO and not fifo):
            raise unknown(name)
        if not kind.accepts(value) and not (value == "" and name in REMOVABLE):
            raise invalid(name)
        found[name] = str(int(value)) if isinstance(kind, Number) else value  # "030" is "30"
    if found.get("Policy"):
        policy = policies.stored(found["Policy"])
        if policy is None:
            raise invalid("Policy")
        found["Policy"] = policy
    if found.get("KmsMasterKeyId"):
        if found.get("SqsManagedSseEnabled") == "true":
            raise SqsError("InvalidAttributeName", _BOTH_KINDS_OF_ENCRYPTION)
        found["SqsManagedSseEnabled"] = "false"
    return found


def check_together(attributes: Mapping[str, str]) -> None:
    """Raise SqsError for attributes that a queue cannot have together."""
    per_group = attributes.get("FifoThroughputLimit") == "perMessageGroupId"
    if per_group and attributes.get("DeduplicationScope") != "messageGroup":
        raise invalid(
            "FifoThroughputLimit",
            "To set FifoThroughputLimit to perMessageGroupId, the DeduplicationScope must be messageGroup.",
        )


def replaced_by(wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Return the attributes of encryption by KMS if that of SQS itself replaces them."""
    return ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds") if wanted.get("SqsManagedSseEnabled") == "true" else ()


def described(attributes: Mapping[str, str], fifo: bool) -> dict[str, str]:
    """Return all attributes with a value, also those that have their default."""
    found = {
        name: value
        for name, kind in ATTRIBUTES.items()
        if (value := attributes.get(name, kind.default)) is not None and (fifo or name not in OF_FIFO)
    }
    if "KmsMasterKeyId" in found:
        found.setdefault("KmsDataKeyReusePeriodSeconds", KMS_REUSE)
    else:
        found.pop("KmsDataKeyReusePeriodSeconds", None)
    return found


def wanted(names: list[str]) -> frozenset[str]:
    """Return the names that a caller asks for, all of them for `All`; raises SqsError for one that does not exist."""
    known = words("QueueAttributeName")
    for name in names:
        if name not in known:
            raise unknown(name)
    return known if "All" in names else frozenset(names)
