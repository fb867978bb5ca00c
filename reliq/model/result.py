"""Results: what a handler has returned, as it is stored in Redis for those who wait for it."""

from typing import Any

import msgspec

from reliq.errors import InvalidMessage
from reliq.model.settings import bytes_text

MAX_RESULT_BYTES = 1024 * 1024
_JSON, _BYTES = b"j", b"b"  #: what a stored result begins with
DEAD, CANCELLED = b"d", b"c"  #: stored in the place of a result


class Answer:
    """What a handler has returned whose results are kept."""

    __slots__ = ("stored",)

    def __init__(self, stored: bytes) -> None:
        self.stored = stored


def answer(value: object) -> Answer:
    """Return the answer for a handler's return value; raises InvalidMessage."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        stored = _BYTES + bytes(value)
    else:
        try:
            stored = _JSON + _encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidMessage(
                f"the handler returned {type(value).__name__}, which cannot be stored as its result: {error}; return "
                "JSON (dicts, lists, texts, numbers, dataclasses) or bytes"
            ) from None
    if len(stored) > MAX_RESULT_BYTES:
        raise InvalidMessage(
            f"the handler returned {len(stored) - 1:,} bytes, the limit of a result is {bytes_text(MAX_RESULT_BYTES)}: "
            "store it elsewhere, and return a reference to it"
        )
    return Answer(stored)


def _encode(value: object) -> bytes:
    model_dump_json = getattr(type(value), "model_dump_json", None)  # pydantic
    return model_dump_json(value).encode() if model_dump_json else msgspec.json.encode(value)


def result_json(stored: bytes) -> bytes | None:
    """Return the JSON of a stored result; None if it is bytes."""
    return stored[1:] if stored.startswith(_JSON) else None


def read_result(stored: bytes) -> Any:
    """Return the value of a stored result."""
    text = result_json(stored)
    return stored[1:] if text is None else msgspec.json.decode(text)
