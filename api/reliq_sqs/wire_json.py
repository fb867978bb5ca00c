"""The protocol AWS JSON 1.0: the action in the header X-Amz-Target, parameters and answers as JSON."""

import json
from typing import Any

import msgspec

from reliq_api.http.problems import Problem
from reliq_api.http.strict_json import check_json_text, read_json
from reliq_sqs.errors import SqsError
from reliq_sqs.model import TARGET_PREFIX, Action, actions
from reliq_sqs.typed import decoder

MEDIA_TYPE = "application/x-amz-json-1.0"

_encode = msgspec.json.Encoder().encode
#: Members that may have half of a surrogate pair: the checks of a message refuse them, and of a batch only that one.
_CHECKED_LATER = frozenset(("MessageBody", "StringValue"))


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
        if b"\\ud" in body.lower() and (read := _with_halves(body)) is not None:
            return read
        raise SqsError("SerializationException", str(problem.detail)) from None
    except msgspec.ValidationError as error:
        raise SqsError("SerializationException", str(error)) from None


def _with_halves(body: bytes) -> Any:
    """Return what a body says if `read_json` refuses it only for half surrogate pairs in messages, else None."""
    try:
        check_json_text(body)
        return json.loads(body.decode(), object_pairs_hook=_checked_pairs, parse_constant=_refuse)
    except (Problem, ValueError, RecursionError):  # UnicodeEncodeError is a ValueError
        return None


def _checked_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object with these members; raises ValueError for a repeated name, or half a pair elsewhere."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same name twice")
    for name, value in pairs:
        name.encode()
        texts = value if isinstance(value, list) else () if name in _CHECKED_LATER else (value,)
        for text in texts:
            if isinstance(text, str):
                text.encode()
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def answer(action: Action, result: dict[str, Any], request_id: str) -> bytes:
    """Encode a result. Bytes are Base64, as msgspec writes them."""
    return _encode(result) if action.returns is not None else b""


def error_answer(error: SqsError, request_id: str) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of an error."""
    headers = {"x-amzn-query-error": f"{error.code};{error.fault}", "x-amzn-errortype": error.kind}
    return _encode({"__type": error.kind, "message": error.message}), headers
