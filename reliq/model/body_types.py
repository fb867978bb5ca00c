"""Types of bodies: how a body of a type is read from JSON, and how an object becomes JSON.

A dataclass, a `msgspec.Struct` and what they contain is msgspec's; a type with a pydantic model in it is pydantic's,
which is imported only then.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Any, ClassVar, Protocol, get_args, get_type_hints

import msgspec

from reliq.errors import InvalidBody

Reader = Callable[[bytes], Any]

_BUFFERS = (bytearray, memoryview)
_NOTHING = b"null"  #: how an empty body, such as that of a schedule, is read
_EMPTY = "it is empty"
_NO_TEXT = "a body of text or bytes is not JSON: take the reliq.Message and read message.body"


class DataclassObject(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class ModelObject(Protocol):
    """An instance of a pydantic model."""

    def model_dump(self, *, mode: str = ..., by_alias: bool = ...) -> dict[str, Any]: ...


TypedBody = msgspec.Struct | DataclassObject | ModelObject


def reader_of(annotation: Any) -> Reader:
    """Return the function that reads JSON as this type and raises InvalidBody; TypeError for an unsuitable type."""
    if annotation in _BUFFERS:
        raise TypeError(f"{annotation.__name__} is not JSON: take bytes")
    name = name_of(annotation)
    if _has_pydantic(annotation):
        return _pydantic_reader(annotation, name)
    _check_for_msgspec(annotation)
    decode = msgspec.json.Decoder(annotation).decode

    def read(body: bytes) -> Any:
        try:
            return decode(body or _NOTHING)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).partition(" - at `")
            raise invalid(name, path.rstrip("`") or "$", problem if body else _EMPTY) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(name, "$", str(error)) from None

    return read


def body_reader_of(annotation: Any) -> Reader:
    """Return what reads a whole body of this type, as `reader_of`; TypeError also for text or bytes of any name.

    Where the type has no free text, a body may be a text itself, such as a member of an enum: `send` writes it so.
    """
    if annotation in _BUFFERS:
        raise TypeError(_NO_TEXT)
    read = reader_of(annotation)
    texts = [] if _has_pydantic(annotation) else list(_are_texts(annotation))
    if texts and all(texts):
        raise TypeError(_NO_TEXT)
    if not texts or any(texts):
        return read

    def read_text_too(body: bytes) -> Any:
        try:
            return read(body)
        except InvalidBody as of_json:
            try:
                return read(msgspec.json.encode(body.decode()))
            except UnicodeDecodeError:
                raise of_json from None
            except InvalidBody as of_text:
                takes_text = not str(of_text).endswith("got `str`")
                raise (of_text if takes_text and not _is_meant_as_json(body) else of_json) from None

    return read_text_too


def _is_meant_as_json(body: bytes) -> bool:
    """Whether a body is JSON, or empty, or begins as an object, array or text of JSON."""
    if not body or body.lstrip().startswith((b"{", b"[", b'"')):
        return True
    try:
        msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    return True


def _are_texts(annotation: Any) -> Iterator[bool]:
    """Yield of each alternative of a type, None aside, whether it is a text or bytes."""
    from msgspec import inspect

    info: Any = inspect.type_info(annotation)
    while isinstance(info, inspect.Metadata):
        info = info.type
    for one in info.types if isinstance(info, inspect.UnionType) else (info,):
        if not isinstance(one, inspect.NoneType):
            yield isinstance(one, (inspect.StrType, inspect.BytesType, inspect.ByteArrayType, inspect.MemoryViewType))


def invalid(name: str, path: str, problem: str) -> InvalidBody:
    """Return the error of a body that does not fit a type."""
    return InvalidBody(f"the body does not fit {name}, at {path}: {problem}", path)


def plain(value: object) -> Any:
    """Return a typed object as what `json` can encode; TypeError for another object."""
    kind: Any = type(value)
    if is_pydantic(kind):
        return _adapter(kind).dump_python(value, mode="json", by_alias=True)
    if isinstance(value, msgspec.Struct) or (is_dataclass(value) and not isinstance(value, type)):
        return msgspec.to_builtins(value, str_keys=True, enc_hook=plain)
    raise TypeError(f"Object of type {kind.__name__} is not JSON serializable")


def name_of(annotation: Any) -> str:
    """Return the name of a type, for an error."""
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


def _parts(annotation: Any, *within: Any) -> Iterator[Any]:
    """Yield a type, its arguments and, of a dataclass, the types of its fields, with the parts of each of them."""
    yield annotation
    if annotation in within:
        return
    parts = get_args(annotation)
    if isinstance(annotation, type) and is_dataclass(annotation) and not is_pydantic(annotation):
        with suppress(NameError, TypeError, AttributeError):  # msgspec says what is wrong
            parts = tuple(get_type_hints(annotation).values())
    for part in parts:
        yield from _parts(part, annotation, *within)


def _has_pydantic(annotation: Any) -> bool:
    return any(map(is_pydantic, _parts(annotation)))


def is_pydantic(kind: Any) -> bool:
    """Whether this is a pydantic model or one of pydantic's dataclasses."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


@functools.cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _pydantic_reader(annotation: Any, name: str) -> Reader:
    from pydantic import TypeAdapter, ValidationError

    validate = TypeAdapter(annotation).validate_json

    def read(body: bytes) -> Any:
        try:
            return validate(body or _NOTHING)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            path = "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
            raise invalid(name, path, first["msg"] if body else _EMPTY) from None

    return read


def _check_for_msgspec(annotation: Any) -> None:
    """Raise TypeError where msgspec would take any object, or none: for a class that it does not know."""
    from msgspec import inspect

    seen: set[int] = set()

    def check(value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, inspect.CustomType):
            raise TypeError(
                f"{name_of(value.cls)} is not a type that JSON can be read into: use a dataclass, a msgspec.Struct "
                "or, for the whole body, a pydantic model"
            )
        if isinstance(value, (inspect.Type, inspect.Field)):
            for name in value.__struct_fields__:
                check(getattr(value, name))
        elif isinstance(value, tuple):
            for one in value:
                check(one)

    check(inspect.type_info(annotation))
