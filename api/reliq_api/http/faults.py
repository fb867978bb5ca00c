"""The error texts for requests that do not fit their schema, in the words of the library where it has some."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from reliq.contract.nearest import nearest
from reliq.contract.values import cut
from reliq.errors import ReliqError

DURATION = 'seconds, or a text such as "90s"'
_LONGEST = 200  #: bytes; an error quotes no more of a request

_CHECKS: dict[str, Callable[[str], object]] = {}  #: by the pattern in schemas


def worded_by(check: Callable[[str], object], pattern: str) -> str:
    """Return the pattern, for a schema. Where a value does not match it, the error text is what `check` raises."""
    _CHECKS[pattern] = check
    return pattern


def no_option(name: str, known: Iterable[str], hint: str = "") -> str:
    """Return the error text for an unknown option; it ends with the hint if the name resembles no known one."""
    near = nearest(name, known)
    return f"no option {cut(repr(name), _LONGEST)}" + (f"; is it {near!r}?" if near else hint)


def check_query(request: Request, known: Collection[str]) -> None:
    """Raise RequestValidationError for misspelt names in the query: they would have no effect. Others are ignored."""
    misspelt = [name for name in request.query_params if name not in known and nearest(name, known)]
    if misspelt:
        raise RequestValidationError(
            [{"type": "extra_forbidden", "loc": ("query", name), "msg": no_option(name, known)} for name in misspelt]
        )


def faults(request: Request, errors: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what is wrong, each with its place. What was sent is not repeated, numbers and names aside."""
    return [{"at": list(one["loc"]), "message": _sentence(request, one), "type": one["type"]} for one in errors]


def _sentence(request: Request, fault: Mapping[str, Any]) -> str:
    """Return a sentence about a fault. A check of a value says "it is": that is the option at the place."""
    kind, place, limits = fault["type"], [str(one) for one in fault["loc"]], fault.get("ctx", {})
    if place == ["body"] and kind in ("missing", "model_attributes_type", "dict_type"):
        return f"send a JSON object{_example(request)}"
    if kind == "extra_forbidden":
        if place[0] == "query":  # by `check_query`, which knows the names of the call
            return str(fault["msg"])
        return _at(place[1:-1], no_option(place[-1], _names(_model(request), place[1:-1])))
    if kind == "string_pattern_mismatch" and (text := _refusal(limits["pattern"], fault["input"])):
        return text
    path, message = ".".join(place[1:] or place), str(fault["msg"])
    if kind in _BOUNDS:
        return f"{path} is {cut(str(fault['input']), _LONGEST)}: it must be {_BOUNDS[kind].format(**limits)}"
    if message.startswith("it is "):
        return path + message.removeprefix("it")
    if kind == "missing":
        return f"{path} is missing"
    what, _, how = kind.partition("_")
    if how in _OF_TYPE and (must := _MUST.get(what)):
        return must_be(path, fault["input"], must.format(**limits))
    return _at(place, message)


def must_be(path: str, value: object, must: str) -> str:
    """Return the sentence about a value of a wrong type at a place of the request."""
    return f"{path}{_quoted(value)} must be {must}"


_BOUNDS = {
    "greater_than_equal": "at least {ge}", "less_than_equal": "at most {le}",
    "greater_than": "more than {gt}", "less_than": "less than {lt}",
}  # fmt: skip


_OF_TYPE = ("", "type", "attributes_type", "parsing", "from_float", "error")  #: string_too_long is no fault of a type
_MUST = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "string": "a text", "list": "an array",
    "dict": "an object", "model": "an object", "enum": "{expected}", "literal": "{expected}",
    "duration": DURATION, "size": 'bytes, or a text such as "8MiB"',
}  # fmt: skip


def _quoted(value: object) -> str:
    """Return a text that quotes a wrong value; empty for an array or object, which may be as large as the request."""
    if isinstance(value, str):
        return f" is {cut(repr(value), _LONGEST)}: it"
    return f" is {msgspec.json.encode(value).decode()}: it" if value is None or isinstance(value, int | float) else ""


def _at(place: Sequence[str], text: str) -> str:
    return f"{'.'.join(place)}: {text}" if place else text


def _refusal(pattern: str, value: str) -> str:
    try:
        if pattern in _CHECKS:
            _CHECKS[pattern](value)
    except ReliqError as error:
        return str(error)
    return ""


def _model(request: Request) -> Any:
    """Return the schema of the request's body; None if it has none."""
    body = getattr(request.scope.get("route"), "body_field", None)
    return None if body is None else _model_in(body.field_info.annotation)


def _model_in(annotation: Any) -> Any:
    """Return the first schema in an annotation, such as that of the members of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _names(model: Any, place: Sequence[str]) -> list[str]:
    """Return the names that the schema has at a place; what is not a name there counts members, or alternatives."""
    for part in place:
        if model is not None and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation)
    return [] if model is None else list(model.model_fields)


def _example(request: Request) -> str:
    extra = getattr(_model(request), "model_config", {}).get("json_schema_extra", {})
    return f", such as {msgspec.json.encode(extra['examples'][0]).decode()}" if extra.get("examples") else ""
