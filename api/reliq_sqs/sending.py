"""SendMessage and SendMessageBatch: what a message must be, and how reliq gets it."""

import hashlib
from dataclasses import dataclass

from reliq.model.outgoing import NewMessage
from reliq_sqs import batches, known, message_attributes, stored, tokens
from reliq_sqs.attributes import DELAY, MOST_BYTES
from reliq_sqs.calls import Call, Parameters, Result
from reliq_sqs.errors import INVALID, SqsError, invalid_parameter, invalid_value, missing
from reliq_sqs.ids import sequence_number
from reliq_sqs.known import SqsQueue

_NOT_FOR_THIS = "The request include parameter that is not valid for this queue type"


@dataclass(frozen=True, slots=True)
class Words:
    """What AWS says of a message that is refused: it has other words for one of a batch."""

    too_large: str
    invalid: str  #: of a value of a parameter, with the reason


ALONE = Words("One or more parameters are invalid. Reason: Message must be shorter than {} bytes.", f"{INVALID}.")
IN_BATCH = Words(ALONE.too_large.replace("are invalid", "cannot be validated"), "{2}")


@dataclass(slots=True)
class Checked:
    """A message that may be sent, and what its sender is told."""

    message: NewMessage
    result: Result


async def send_message(call: Call) -> Result:
    """Send one message."""
    queue = await call.queue()
    (result,) = await _send(call, queue, [_checked(call, queue, call.given)])
    return result


async def send_message_batch(call: Call) -> Result:
    """Send up to ten messages. Each one may fail alone; on a FIFO queue one that is refused refuses all."""
    queue = await call.queue()
    entries = batches.checked(call.action, call.given["Entries"])
    total = sum(_size(one) for one in entries)
    if total > MOST_BYTES:
        raise SqsError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MOST_BYTES} bytes. You have sent {total} bytes.",
        )
    outcome = batches.Outcome()
    accepted: list[tuple[str, Checked]] = []
    for place, entry in enumerate(entries, 1):
        path = f"SendMessageBatchRequestEntry.{place}."
        try:
            accepted.append((entry["Id"], _checked(call, queue, entry, ALONE if queue.fifo else IN_BATCH, path)))
        except SqsError as error:
            if queue.fifo:
                raise _of_all(error) from None
            outcome.fail(entry["Id"], error)
    if accepted:
        results = await _send(call, queue, [one for _, one in accepted])
        for (identity, _), result in zip(accepted, results, strict=True):
            outcome.succeed(identity, result)
    return outcome.result()


def _of_all(error: SqsError) -> SqsError:
    """Return the error of a batch for that of its message: what is missing there is a wrong value of the batch."""
    return invalid_parameter(error.message) if error.name == "MissingRequiredParameterException" else error


def _size(entry: Parameters) -> int:
    body: str = entry["MessageBody"]
    size = len(body) if body.isascii() else len(body.encode(errors="surrogatepass"))
    return size + message_attributes.size(entry.get("MessageAttributes", {}))


def _checked(call: Call, queue: SqsQueue, given: Parameters, words: Words = ALONE, path: str = "") -> Checked:
    text: str = given["MessageBody"]
    if not text:
        raise missing(f"{path}MessageBody")
    body = message_attributes.checked_text(text, "message body")
    attributes = message_attributes.checked(given.get("MessageAttributes", {}))
    system = message_attributes.checked_system(given.get("MessageSystemAttributes", {}))
    if len(body) + message_attributes.size(attributes) > queue.largest:
        raise invalid_parameter(words.too_large.format(queue.largest))
    message = queue.alike.like(body, call.registry.ids.new())
    _set_options(message, call, queue, given, words)
    trace = system[message_attributes.TRACE]["StringValue"] if system else call.trace
    content = stored.Content("", attributes, call.sender.id, trace, given.get("MessageDeduplicationId", ""))
    message.body, headers = stored.written(body, content)
    if headers:
        message.headers = headers
    result: Result = {"MD5OfMessageBody": hashlib.md5(body, usedforsecurity=False).hexdigest()}
    if attributes:
        result["MD5OfMessageAttributes"] = message_attributes.digest(attributes)
    if system:
        result["MD5OfMessageSystemAttributes"] = message_attributes.digest(system)
    return Checked(message, result)


def _set_options(message: NewMessage, call: Call, queue: SqsQueue, given: Parameters, words: Words) -> None:
    """Give a message the options of its own; raises SqsError."""
    group, dedup, delay = given.get("MessageGroupId"), given.get("MessageDeduplicationId"), given.get("DelaySeconds")
    if delay is not None and not 0 <= delay <= DELAY.largest:
        raise invalid_value(delay, "DelaySeconds", f"DelaySeconds must be >= 0 and <= {DELAY.largest}.")
    if queue.fifo:
        _check_fifo(queue, given)
        if delay:
            raise invalid_parameter(words.invalid.format(delay, "DelaySeconds", _NOT_FOR_THIS))
        message.key = given["MessageGroupId"]
        scoped = dedup or hashlib.sha256(message.body).hexdigest()
        by_group = queue.deduplicates_by_group(call.registry.ids.server_now())
        message.dedup_key = f"{group} {scoped}" if by_group else scoped
        return
    if dedup is not None:
        raise invalid_parameter(words.invalid.format(dedup, "MessageDeduplicationId", _NOT_FOR_THIS))
    if group is not None:
        tokens.check("MessageGroupId", group, words.invalid)
        message.limit_key = group
    if delay is not None:
        message.delay = float(delay)


def _check_fifo(queue: SqsQueue, given: Parameters) -> None:
    """Raise SqsError unless a message has what one of a FIFO queue needs."""
    if "MessageGroupId" not in given:
        raise missing("MessageGroupId")
    tokens.check("MessageGroupId", given["MessageGroupId"])
    dedup = given.get("MessageDeduplicationId")
    if dedup is not None:
        tokens.check("MessageDeduplicationId", dedup)
    elif not queue.by_content:
        raise invalid_parameter(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
            "explicitly"
        )


async def _send(call: Call, queue: SqsQueue, accepted: list[Checked]) -> list[Result]:
    """Send messages in one call; return what their senders are told."""
    await call.endpoint.pressure.check()
    messages = [one.message for one in accepted]
    if not queue.fair and [one for one in messages if one.limit_key]:
        await _make_fair(call, queue)
    size = sum([len(one.body) for one in messages])
    send = call.registry.handle(queue).send_many
    ids = await call.endpoint.joined.run(("send", queue.queue), messages, send, size)
    for one, identity in zip(accepted, ids, strict=True):
        one.result["MessageId"] = identity
        if queue.fifo:
            one.result["SequenceNumber"] = sequence_number(identity, 0)
    return [one.result for one in accepted]


async def _make_fair(call: Call, queue: SqsQueue) -> None:
    """Let the groups of a standard queue take turns, from the first message with a group on."""
    await call.registry.handle(queue).configure(fair=True)
    await call.registry.change(queue, lambda _: ({known.FAIR: "1"}, ()))
