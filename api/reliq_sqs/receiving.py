"""ReceiveMessage: which messages, and what of them a receiver asks for."""

import hashlib
from collections.abc import Sequence
from typing import Any

from reliq import TooManyInFlight
from reliq.model.dead_letter import DEAD_FROM
from reliq_sqs import message_attributes, receipts, stored, tokens
from reliq_sqs.attributes import VISIBILITY, WAIT
from reliq_sqs.calls import Call, Result
from reliq_sqs.errors import SqsError, invalid_value
from reliq_sqs.ids import sequence_number
from reliq_sqs.known import SqsQueue
from reliq_sqs.model import words

_MOST_MESSAGES, _MOST_IN_FLIGHT = 10, 120_000


async def receive_message(call: Call) -> Result:
    """Receive up to ten messages; without one, wait as long as the call or the queue says."""
    given = call.given
    most = _between(given.get("MaxNumberOfMessages", 1), "MaxNumberOfMessages", 1, _MOST_MESSAGES)
    queue = await call.queue()
    wait = _between(given.get("WaitTimeSeconds", queue.wait), "WaitTimeSeconds", 0, WAIT.largest)
    visibility = _between(given.get("VisibilityTimeout", queue.visibility), "VisibilityTimeout", 0, VISIBILITY.largest)
    system = _system_names(given.get("AttributeNames", ()), given.get("MessageSystemAttributeNames", ()))
    attempt = given.get("ReceiveRequestAttemptId") if queue.fifo else None
    if attempt is not None:
        tokens.check("ReceiveRequestAttemptId", attempt)
    try:
        received = await call.endpoint.waits.receive(
            call.registry.handle(queue),
            wait,
            call.gone,
            limit=most,
            visibility=visibility,
            most_receives=await _most_receives(call, queue),
            runs=queue.fifo,
            attempt=attempt,
            most_in_flight=_MOST_IN_FLIGHT,
        )
    except TooManyInFlight:
        if queue.fifo or wait:
            return {}
        raise SqsError("OverLimit", f"Too many messages in flight: {_MOST_IN_FLIGHT} are allowed.") from None
    chosen = given.get("MessageAttributeNames", ())
    messages = [_message(call, queue, one, system, chosen) for one in received]
    return {"Messages": messages} if messages else {}


async def _most_receives(call: Call, queue: SqsQueue) -> int | None:
    """Return how often a message may be received; None: any number, as there is no dead letter queue for it."""
    if queue.buries is None or await call.registry.find(queue.buries.target) is None:
        return None  # a move would make a deleted queue anew, with none of its attributes
    return queue.buries.most_receives


def _between(value: int, name: str, least: int, most: int) -> int:
    if not least <= value <= most:
        limits = f"between {least} and {most}" if name == "MaxNumberOfMessages" else f">= {least} and <= {most}"
        raise invalid_value(value, name, f"Must be {limits}, if provided.")
    return value


def _system_names(older: Sequence[str], newer: Sequence[str]) -> frozenset[str]:
    """Return the system attributes that are asked for: by the newer list, if it names any; its unknown names find none.

    The older list may name attributes of queues, too, which are ignored.
    """
    known = words("MessageSystemAttributeName")
    for name in () if newer else older:
        if name not in known and name not in words("QueueAttributeName"):
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")
    names = newer or older
    return known if "All" in names else frozenset(names)


def _message(call: Call, queue: SqsQueue, received: Any, system: frozenset[str], chosen: list[str]) -> Result:
    message = received.message
    content = stored.read(message)
    found: Result = {
        "MessageId": message.id,
        "ReceiptHandle": receipts.made(queue.queue, received.receipt, received.received_at),
        "MD5OfBody": hashlib.md5(content.body.encode(), usedforsecurity=False).hexdigest(),
        "Body": content.body,
    }
    if system and (attributes := _system(call, queue, received, content, system)):
        found["Attributes"] = attributes
    if picked := message_attributes.chosen(content.attributes, chosen):
        found["MD5OfMessageAttributes"] = message_attributes.digest(picked)
        found["MessageAttributes"] = picked
    return found


def _system(
    call: Call, queue: SqsQueue, received: Any, content: stored.Content, names: frozenset[str]
) -> dict[str, str]:
    message = received.message
    found = {
        "SenderId": content.sender or call.registry.names.account,
        "SentTimestamp": str(message.enqueued_at),
        "ApproximateReceiveCount": str(received.receives),
        "ApproximateFirstReceiveTimestamp": str(received.first_received_at),
    }
    if queue.fifo:
        found["SequenceNumber"] = sequence_number(message.id, message.enqueued_at)
        found["MessageDeduplicationId"] = content.dedup or hashlib.sha256(content.body.encode()).hexdigest()
    if group := message.key or message.limit_key:
        found["MessageGroupId"] = group
    if content.trace:
        found["AWSTraceHeader"] = content.trace
    source = call.registry.names.of_queue(message.headers.get(DEAD_FROM, ""))
    if source is not None:
        found["DeadLetterQueueSourceArn"] = call.registry.names.arn(source)
    return {name: value for name, value in found.items() if name in names}
