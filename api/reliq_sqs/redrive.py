"""RedrivePolicy and RedriveAllowPolicy: where dead letters of a queue go, and who may send them here."""

import json
from dataclasses import dataclass
from typing import Any

from reliq_sqs.attributes import invalid
from reliq_sqs.errors import SqsError, invalid_value
from reliq_sqs.names import Names, Place
from reliq_sqs.policies import read_json

_MOST_RECEIVES = 1000
_MOST_SOURCES = 10
_NOT_ALLOWED = "Amazon SQS can't create the redrive allow policy"


@dataclass(frozen=True, slots=True)
class Redrive:
    """A redrive policy."""

    target: Place
    most_receives: int
    text: str  #: as it is stored and returned


def read(text: str, source: Place, names: Names) -> Redrive:
    """Return the policy of a queue, as its caller wrote it; raises SqsError."""
    policy = read_json(text)

    def refused(reason: str) -> SqsError:
        return invalid_value(text, "RedrivePolicy", reason)

    if not isinstance(policy, dict):
        raise invalid("RedrivePolicy", "Redrive policy is not a valid JSON map.")
    for name in ("maxReceiveCount", "deadLetterTargetArn"):
        if name not in policy:
            raise refused(f"Redrive policy does not contain mandatory attribute: {name}.")
    for name in policy:
        if name not in ("maxReceiveCount", "deadLetterTargetArn"):
            raise refused("Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount].")
    arn = str(policy["deadLetterTargetArn"])
    target = names.of_arn(arn)
    if target is None:
        raise refused(_why_no_target(arn, names))
    given = policy["maxReceiveCount"]
    count = _whole(given)
    if count is None or not 1 <= count <= _MOST_RECEIVES:
        written = given if isinstance(given, str) else json.dumps(given)
        raise refused(
            f"Invalid value for maxReceiveCount: {written}, valid values are from 1 to {_MOST_RECEIVES} both inclusive."
        )
    if target.region != source.region:
        raise refused("Dead-letter target must be in same region as the source.")
    if target.fifo != source.fifo:
        raise refused("Dead-letter queue must be same type of queue as the source..")  # AWS has two full stops
    stored = {"deadLetterTargetArn": arn, "maxReceiveCount": count}
    return Redrive(target, count, json.dumps(stored, separators=(",", ":")))


def _why_no_target(arn: str, names: Names) -> str:
    parts = arn.split(":")
    if len(parts) == 6 and parts[2] != "sqs":
        return "Only SQS queues are valid resources for deadLetterTargetArn."
    if len(parts) == 6 and parts[4].isdigit() and parts[4] != names.account:
        return "Dead-letter target owner should be same as the source."
    return "Invalid value for deadLetterTargetArn."


def stored(text: str | None, names: Names) -> Redrive | None:
    """Return the policy that a queue has."""
    policy = read_json(text) if text else None
    if not isinstance(policy, dict):
        return None
    target = names.of_arn(str(policy.get("deadLetterTargetArn")))
    count = _whole(policy.get("maxReceiveCount"))
    return None if target is None or count is None else Redrive(target, count, text or "")


def check_allow(text: str, region: str) -> None:
    """Raise SqsError unless this is a redrive allow policy for a queue of a region."""
    policy = read_json(text)
    whole = isinstance(policy, dict) and policy.keys() <= {"redrivePermission", "sourceQueueArns"}
    permission, sources = (policy.get("redrivePermission"), policy.get("sourceQueueArns", [])) if whole else ("", [])
    texts = isinstance(sources, list) and all(isinstance(one, str) for one in sources)
    if permission not in ("allowAll", "denyAll", "byQueue") or not texts:
        raise invalid("RedriveAllowPolicy", f"{_NOT_ALLOWED}, as it\u2019s in an unsupported format.")
    if permission != "byQueue" and sources:
        reason = "To specify one or more source queue ARNs, you must set redrivePermission to byQueue."
    elif permission == "byQueue" and not sources:
        reason = (
            "When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values."
        )
    elif len(sources) > _MOST_SOURCES:
        reason = f"The maximum number of source queue ARNs you can specify is {_MOST_SOURCES}."
    elif any(one.split(":")[3:4] != [region] for one in sources):
        reason = "All source queue ARNs must be in the same region as the current SQS queue."
    else:
        return
    raise invalid_value(text, "RedriveAllowPolicy", f"{_NOT_ALLOWED}. {reason}")


def allows(text: str | None, source_arn: str) -> bool:
    """Whether a queue with this redrive allow policy accepts another one's dead letters."""
    policy: Any = read_json(text) if text else None
    if not isinstance(policy, dict):
        return True
    permission = policy.get("redrivePermission")
    return permission == "allowAll" or (permission == "byQueue" and source_arn in policy.get("sourceQueueArns", ()))


def _whole(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if type(value) is int else None
