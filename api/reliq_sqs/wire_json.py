"""The protocol AWS JSON 1.0: the action in the header X-Amz-Target, parameters and answers as JSON."""

from typing import Any

import msgspec

from reliq_api.http.problems import Problem
from reliq_api.http.strict_json import read_json
from reliq_sqs.errors import SqsError
from reliq_sqs.model import TARGET_PREFIX, Action, actions
from reliq_sqs.typed import decoder

MEDIA_TYPE = "application/x-amz-json-1.0"

_encode = msgspec.json.Encoder().encode


def action_of(target: str) -> Action:
    """Return the action that a header names; raises SqsError."""
    action = actions().get(target.removeprefix(TARGET_PREFIX)) if target.startswith(TARGET_PREFIX) else None
    if action is None:
        raise SqsError("UnknownOperationException", f"The operation {target[:100]} is not known.")
    return action


def valid(action: Action, body: bytes) -> dict[str, Any] | None:
    """Return the parameters of a valid request, in a third of the time of `checked`; None: it may have others."""
    try:
        read: dict[str, Any] = read_json(body, decoder(action.takes))
    except (Problem, msgspec.ValidationError):
        return None
    return read


def parameters(body: bytes) -> Any:
    """Return what the body says; raises SqsError."""
    if not body:
        return {}
    try:
        return read_json(body)
    except Problem as problem:
        raise SqsError("SerializationException", str(problem.detail)) from None
    except msgspec.ValidationError as error:
        raise SqsError("SerializationException", str(error)) from None


def answer(action: Action, result: dict[str, Any]) -> bytes:
    """Encode a result. Bytes are Base64, as msgspec writes them."""
    return _encode(result) if action.returns is not None else b""


def error_answer(error: SqsError) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of an error."""
    headers = {"x-amzn-query-error": f"{error.code};{error.fault}", "x-amzn-errortype": error.kind}
    return _encode({"__type": error.kind, "message": error.message}), headers
