"""Answers of the query protocol to those who accept only JSON, such as an API gateway: as AWS writes them.

A member without a value is null, and a map is a list of its pairs.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from reliq_sqs.errors import SqsError
from reliq_sqs.model import Action, Shape
from reliq_sqs.wire_query import message_of

MEDIA_TYPE = "application/json"
_CALLED = {"QueueUrls": "queueUrls", "Messages": "messages"}  #: members whose names differ from those of the model


def is_wanted(headers: Mapping[str, str]) -> bool:
    """Whether JSON is the first that a client accepts."""
    return headers.get("accept", "").partition(",")[0].partition(";")[0].strip().lower() == MEDIA_TYPE


def answer(action: Action, result: dict[str, Any], request_id: str) -> bytes:
    """Write a result."""
    inside: dict[str, Any] = {}
    if action.returns is not None:
        inside[f"{action.name}Result"] = _structure(action.returns, result)
    return msgspec.json.encode({f"{action.name}Response": {**inside, "ResponseMetadata": {"RequestId": request_id}}})


def error_answer(error: SqsError, request_id: str) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of an error."""
    written = {"Code": error.code, "Detail": None, "Message": message_of(error), "Type": error.fault}
    return msgspec.json.encode({"Error": written, "RequestId": request_id}), {}


def _structure(shape: Shape, value: dict[str, Any]) -> dict[str, Any]:
    return {_CALLED.get(name, name): _written(member, value.get(name)) for name, member in shape.members.items()}


def _written(shape: Shape, value: Any) -> Any:
    if value is None:
        return None
    match shape.kind:
        case "structure":
            return _structure(shape, value)
        case "list":
            return [_written(shape.of, one) for one in value]
        case "map":
            key, content = shape.pair
            return [{key: one, content: _written(shape.of, of)} for one, of in value.items()]
    return value
