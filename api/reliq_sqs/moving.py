"""The actions on move tasks: start, cancel, list."""

import base64
from typing import Any

import msgspec

from reliq_sqs.calls import Call, Result
from reliq_sqs.errors import SqsError, invalid_parameter, invalid_value
from reliq_sqs.known import SqsQueue
from reliq_sqs.moves import Task

_MOST_RATE, _MOST_SHOWN = 500, 10


class _Handle(msgspec.Struct):
    """What a task handle says, as AWS' own do."""

    taskId: str  # noqa: N815
    sourceArn: str  # noqa: N815


async def start_message_move_task(call: Call) -> Result:
    """Begin to move the messages of a dead letter queue: to a queue, or back to those in which they died."""
    source = await _of_arn(call, call.given["SourceArn"], "SourceArn")
    arn, rate = call.given.get("DestinationArn"), call.given.get("MaxNumberOfMessagesPerSecond")
    if rate is not None and not 1 <= rate <= _MOST_RATE:
        raise invalid_parameter(
            "Value for parameter MaxNumberOfMessagesPerSecond is invalid. Reason: You must enter a number that's "
            f"between 1 and {_MOST_RATE}."
        )
    destination = None if arn is None else await _of_arn(call, arn, "DestinationArn")
    if destination is not None and destination.queue == source.queue:  # it would not end
        raise invalid_parameter("Source queue arn and destination queue arn cannot be the same.")
    if destination is not None and destination.fifo != source.fifo:
        raise invalid_parameter("The source queue and destination queue must be of the same queue type.")
    if not await call.registry.sources(source):
        raise invalid_parameter("Source queue must be configured as a Dead Letter Queue.")
    if any(one.active and one.source == source.queue for one in await call.endpoint.moves.all()):
        raise invalid_parameter(
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
        )
    task = await call.endpoint.moves.add(source, destination, rate, call.sender.queues)
    return {"TaskHandle": _handle(task)}


async def cancel_message_move_task(call: Call) -> Result:
    """End a move task; messages that were moved stay where they are."""
    try:
        handle = msgspec.json.decode(base64.b64decode(call.given["TaskHandle"], validate=True), type=_Handle)
    except (ValueError, msgspec.MsgspecError):
        raise invalid_parameter("Value for parameter TaskHandle is invalid.") from None
    source = await _of_arn(call, handle.sourceArn, "SourceArn")
    tasks = await call.endpoint.moves.all()
    task = next((one for one in tasks if one.id == handle.taskId and one.source == source.queue), None)
    if task is None:
        raise SqsError("ResourceNotFoundException", "Task does not exist.")
    if task.status != "RUNNING":
        raise invalid_parameter("Only active tasks can be cancelled.")
    task = await call.endpoint.moves.cancel(task)
    return {"ApproximateNumberOfMessagesMoved": task.moved}


async def list_message_move_tasks(call: Call) -> Result:
    """List the latest move tasks of a queue."""
    most = call.given.get("MaxResults", 1)
    if not 1 <= most <= _MOST_SHOWN:
        raise invalid_value(most, "MaxResults", f"Must be between 1 and {_MOST_SHOWN}, if provided.")
    source = await _of_arn(call, call.given["SourceArn"], "SourceArn")
    tasks = [one for one in await call.endpoint.moves.all() if one.source == source.queue]
    return {"Results": [_described(one) for one in tasks[:most]]}


def _described(task: Task) -> dict[str, Any]:
    described: dict[str, Any] = {"TaskHandle": _handle(task)} if task.status == "RUNNING" else {}
    described |= {"Status": task.status, "SourceArn": task.source_arn}
    if task.destination_arn:
        described["DestinationArn"] = task.destination_arn
    if task.rate is not None:
        described["MaxNumberOfMessagesPerSecond"] = task.rate
    described["ApproximateNumberOfMessagesMoved"] = task.moved
    described["ApproximateNumberOfMessagesToMove"] = max(task.to_move, task.moved)
    if task.failure:
        described["FailureReason"] = task.failure
    described["StartedTimestamp"] = task.started
    return described


def _handle(task: Task) -> str:
    return base64.b64encode(msgspec.json.encode(_Handle(task.id, task.source_arn))).decode()


async def _of_arn(call: Call, arn: str, parameter: str) -> SqsQueue:
    """Return the queue that an ARN names; raises SqsError."""
    if len(parts := arn.split(":")) != 6 or parts[0] != "arn" or not all(parts):
        raise invalid_parameter(
            f"You must use this format to specify the {parameter}: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        )
    place = call.registry.names.of_arn(arn)
    found = None
    if place is not None:
        call.allow(place)
        found = await call.registry.find(place)
    if found is None:
        raise SqsError(
            "ResourceNotFoundException", f"The resource that you specified for the {parameter} parameter doesn't exist."
        )
    return found
