"""DeleteMessage, ChangeMessageVisibility and their batches: what is done with a receipt handle."""

from functools import partial

from reliq_sqs import batches, receipts
from reliq_sqs.attributes import VISIBILITY
from reliq_sqs.calls import Call, Parameters, Result
from reliq_sqs.errors import SqsError, invalid_value, missing
from reliq_sqs.known import SqsQueue

_GONE = "Message does not exist or is not available for visibility timeout change."
_EXPIRED = "The receipt handle has expired"
_TOO_LONG = f"Total VisibilityTimeout for the message is beyond the limit [{VISIBILITY.largest} seconds]."


async def delete_message(call: Call) -> Result:
    """Delete a message. With a handle that expired it is deleted while no other receive holds it; not on FIFO."""
    queue = await call.queue()
    expired = invalid_value(call.given["ReceiptHandle"], "ReceiptHandle", f"{_EXPIRED}.")
    if _is_blank(call.given):
        raise missing("MessageHandle")  # as AWS calls it here, and only here
    _raise_first(await _delete(call, queue, [call.given], expired))
    return {}


async def delete_message_batch(call: Call) -> Result:
    """Delete up to ten messages."""
    queue = await call.queue()
    entries = batches.checked(call.action, call.given["Entries"])
    return _outcome(entries, await _delete(call, queue, entries, SqsError("ReceiptHandleIsInvalid", _EXPIRED)))


async def change_message_visibility(call: Call) -> Result:
    """Let a message be invisible for so many seconds from now on; 0 makes it visible."""
    queue = await call.queue()
    _raise_first(await _change(call, queue, [call.given], ""))
    return {}


async def change_message_visibility_batch(call: Call) -> Result:
    """Change the visibility of up to ten messages."""
    queue = await call.queue()
    entries = batches.checked(call.action, call.given["Entries"])
    return _outcome(entries, await _change(call, queue, entries, "ChangeMessageVisibilityBatchRequestEntry.{}."))


def _raise_first(errors: list[SqsError | None]) -> None:
    if errors[0] is not None:
        raise errors[0]


def _outcome(entries: list[Parameters], errors: list[SqsError | None]) -> Result:
    outcome = batches.Outcome()
    for entry, error in zip(entries, errors, strict=True):
        if error is None:
            outcome.succeed(entry["Id"])
        else:
            outcome.fail(entry["Id"], error)
    return outcome.result()


def _is_blank(entry: Parameters) -> bool:
    return not entry["ReceiptHandle"].strip()


def _handles(
    queue: SqsQueue, entries: list[Parameters], path: str | None = None, now: float = 0.0
) -> list[receipts.Handle | SqsError]:
    """Return the handles of entries, or why one is refused; with a path also for the wrong time of an entry.

    `now`: seconds since the epoch, by the server.
    """
    found: list[receipts.Handle | SqsError] = []
    for place, one in enumerate(entries, 1):
        try:
            if _is_blank(one):
                raise missing("ReceiptHandle")
            if path is not None:
                _check_time(one, path.format(place))
            handle = receipts.read(one["ReceiptHandle"], queue.queue)
            if path is not None:
                _check_total(one["VisibilityTimeout"], max(0.0, now - handle.received_at / 1000))
            found.append(handle)
        except SqsError as error:
            found.append(error)
    return found


async def _delete(call: Call, queue: SqsQueue, entries: list[Parameters], expired: SqsError) -> list[SqsError | None]:
    """Delete messages; return for each why it was not deleted. One that is gone already is no error.

    `expired`: what is said of a handle of a FIFO queue that expired, for which AWS has other words in a batch.
    """
    handles = _handles(queue, entries)
    known = [one.receipt for one in handles if isinstance(one, receipts.Handle)]
    delete = partial(call.registry.handle(queue).delete_received, late=not queue.fifo)
    codes = await call.endpoint.joined.run(("delete", queue.queue), known, delete) if known else ()
    return _errors(handles, [expired if code == "expired" and queue.fifo else None for code in codes])


async def _change(call: Call, queue: SqsQueue, entries: list[Parameters], path: str) -> list[SqsError | None]:
    """Change visibilities; return for each message why it was not changed. `path`: how an error names an entry.

    With a handle that expired nothing is changed, which is an error only on a FIFO queue.
    """
    done = ("changed",) if queue.fifo else ("changed", "expired")
    handles = _handles(queue, entries, path, call.registry.ids.server_now())
    pairs = zip(handles, entries, strict=True)
    known = [(one.receipt, entry) for one, entry in pairs if isinstance(one, receipts.Handle)]
    times = [(receipt, entry["VisibilityTimeout"]) for receipt, entry in known]
    codes = await call.registry.handle(queue).change_visibility(times, late=not queue.fifo) if known else ()
    gone = [invalid_value(entry["ReceiptHandle"], "ReceiptHandle", _GONE) for _, entry in known]
    return _errors(handles, [None if code in done else why for code, why in zip(codes, gone, strict=True)])


def _errors(handles: list[receipts.Handle | SqsError], answers: list[SqsError | None]) -> list[SqsError | None]:
    """Return for each handle why it was refused, else what was answered: the answers are those of the others."""
    rest = iter(answers)
    return [one if isinstance(one, SqsError) else next(rest) for one in handles]


def _check_time(entry: Parameters, path: str) -> None:
    if "VisibilityTimeout" not in entry:
        raise missing(f"{path}VisibilityTimeout")
    seconds = entry["VisibilityTimeout"]
    if not 0 <= seconds <= VISIBILITY.largest:
        reason = f"VisibilityTimeout must be an integer between 0 and {VISIBILITY.largest}."
        raise invalid_value(seconds, "VisibilityTimeout", reason)


def _check_total(seconds: int, so_far: float) -> None:
    if so_far + seconds >= VISIBILITY.largest:
        raise invalid_value(seconds, "VisibilityTimeout", _TOO_LONG)
