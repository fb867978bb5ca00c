"""Why a body cannot be encoded as JSON: the place in it and the type that is there, never a value."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from reliq.contract.values import cut
from reliq.model.body_types import is_pydantic, plain

#: What to do about a type that JSON does not have.
_ADVICE = {
    "datetime": "send its isoformat()",
    "date": "send its isoformat()",
    "time": "send its isoformat()",
    "timedelta": "send its total_seconds()",
    "Decimal": "send str() of it",
    "UUID": "send str() of it",
    "PosixPath": "send str() of it",
    "set": "send a list of it",
    "frozenset": "send a list of it",
    "bytes": "send its hex(), or the bytes alone as the body",
    "bytearray": "send its hex(), or the bytes alone as the body",
    "coroutine": "await it first",
}
_KEYS = (str, int, float, bool, type(None))
_DEEPEST = 200  #: levels that are looked through


def why_not_json(body: Any, error: Exception) -> str:
    """Return what in the body is not JSON, and where; the encoder's own text if that is not found."""
    return next(_problems(body, "$", 0), str(error))


def _problems(value: Any, path: str, depth: int) -> Iterator[str]:
    """Yield what is wrong below a path."""
    if depth > _DEEPEST:
        yield f"it is nested more than {_DEEPEST} levels deep, or contains itself"
    elif isinstance(value, str):
        if not _is_unicode(value):
            yield f"the text at {path} is not valid Unicode"
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield f"{path} is {value}, which JSON does not have"
    elif value is None or isinstance(value, int):
        return
    elif isinstance(value, dict):
        for key, one in value.items():
            if isinstance(key, _KEYS):
                yield from _problems(one, _below(path, key), depth + 1)
            else:
                yield f"a key at {path} is of type {type(key).__name__}: the keys of a JSON object are texts"
    elif isinstance(value, (list, tuple)):
        for place, one in enumerate(value):
            yield from _problems(one, f"{path}[{place}]", depth + 1)
    elif isinstance(value, msgspec.Struct) or (is_dataclass(value) and not isinstance(value, type)):
        names = value.__struct_fields__ if isinstance(value, msgspec.Struct) else [one.name for one in fields(value)]
        for name in names:
            part = getattr(value, name)
            if not _is_builtin(part):
                yield from _problems(part, f"{path}.{name}", depth + 1)
    elif is_pydantic(type(value)):
        try:
            written = plain(value)
        except (TypeError, ValueError, RecursionError) as error:
            yield f"pydantic makes no JSON of {path}: {error}"
        else:
            yield from _problems(written, path, depth + 1)
    else:
        name = type(value).__name__
        advice = _ADVICE.get(name, "send the parts of it that JSON has")
        yield f"{path} is of type {name}, which JSON does not have: {advice}"


def _is_builtin(value: object) -> bool:
    """Whether msgspec makes JSON of a field of this type by itself."""
    try:
        msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError, RecursionError):
        return False
    return not isinstance(value, float) or math.isfinite(value)


def _below(path: str, key: object) -> str:
    """Return the path of a member: a name as it is, anything else in brackets."""
    text = cut(str(key), 80)
    return f"{path}.{text}" if text.isidentifier() else f"{path}[{text!r}]"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
