"""Results: what a handler has returned, as it is stored in Redis for those who wait for it."""

import json
from typing import Any, TypeVar

import msgspec

from reliq.contract.outcomes import Stored
from reliq.contract.values import bytes_text
from reliq.errors import InvalidMessage

MAX_RESULT_BYTES = 1024 * 1024
T = TypeVar("T")
_strict_json = json.JSONEncoder(allow_nan=False).encode
_JSON, _BYTES, DEAD, CANCELLED, SKIPPED = (one.value for one in Stored)


class Results(list[T]):
    """What a typed handler takes beside its body: the results of the messages that its own has waited for in a flow.

        def assemble(order: Order, parts: reliq.Results[Part]): ...

    In the order of `after`, each as the type in brackets; None for one that has failed, or was skipped.
    """


class Answer:
    """What a handler has returned whose results are kept, and how it is stored."""

    __slots__ = ("stored", "value")

    def __init__(self, value: object) -> None:
        """Raises InvalidMessage if it cannot be stored."""
        self.value = value
        self.stored = stored(value, "the handler returned", "result")


def stored(value: object, begins: str, noun: str) -> bytes:
    """Return JSON or bytes as they are stored; raises InvalidMessage: `begins` its text, `noun`: what the value is."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        kept: bytes = _BYTES + bytes(value)
    else:
        try:
            kept = _JSON + _encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidMessage(
                f"{begins} {type(value).__name__}, which cannot be stored as a {noun}: {error}; give JSON (dicts, "
                "lists, texts, numbers, dataclasses) or bytes"
            ) from None
    if len(kept) - 1 > MAX_RESULT_BYTES:
        raise InvalidMessage(
            f"{begins} {len(kept) - 1:,} bytes, the limit of a {noun} is {bytes_text(MAX_RESULT_BYTES)}: store it "
            "elsewhere, and give a reference to it"
        )
    return kept


def _encode(value: Any) -> bytes:
    if not hasattr(type(value), "model_dump_json"):
        plain = msgspec.json.encode(value, enc_hook=_of_pydantic)
        if b"null" in plain:
            _refuse_non_finite(msgspec.to_builtins(value, str_keys=True, enc_hook=_of_pydantic))
        return plain
    encoded: bytes = value.model_dump_json().encode()  # pydantic
    suspicious = any(one in encoded for one in (b"null", b"NaN", b"Infinity"))
    if suspicious and value.model_config.get("ser_json_inf_nan") != "strings":
        _refuse_non_finite(value.model_dump(mode="json"))
    return encoded


def _of_pydantic(value: Any) -> Any:
    """Return a pydantic model within another value as what JSON can hold; TypeError for any other object."""
    if not hasattr(type(value), "model_dump"):
        raise TypeError(f"objects of type {type(value).__name__} are not JSON")
    return value.model_dump(mode="json")


def _refuse_non_finite(value: object) -> None:
    """Raise ValueError for NaN and infinity: JSON has neither, and encoders write null in their place."""
    try:
        _strict_json(value)
    except ValueError:
        raise ValueError("it has a float that is NaN or infinite, which JSON does not have") from None


def result_json(stored: bytes) -> bytes | None:
    """Return the JSON of a stored result; None if it is bytes."""
    return stored[1:] if stored.startswith(_JSON) else None


def read_result(stored: bytes) -> Any:
    """Return the value of a stored result."""
    text = result_json(stored)
    return stored[1:] if text is None else msgspec.json.decode(text)
