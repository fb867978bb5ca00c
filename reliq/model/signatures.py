"""Signatures of the functions that an application registers: what they can be called with, by their annotations."""

import functools
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import AsyncGeneratorType, CoroutineType, GeneratorType, NoneType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from reliq.errors import InvalidHandler, InvalidName
from reliq.model.body_types import Reader, body_reader_of, reader_of
from reliq.model.message import Message
from reliq.model.policy import Again, Dead, Retry
from reliq.model.result import Results

HandlerFunction = Callable[..., Any]

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_PLACE = (
    inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
)  # fmt: skip
_ANYTHING = (inspect.Parameter.empty, Any, object)
_COUNTS = {1: "exactly one positional argument", 2: "exactly two positional arguments"}
_OF_HANDLERS = "the message, or a body and the message, each annotated with its type"
_MESSAGE = re.compile(r"(\w+\.)*Message")


@dataclass(frozen=True, slots=True)
class TypedCall:
    """How a function with an annotated body is called."""

    read: Reader | None  #: None: it takes no body
    call: Callable[..., Any]  #: the function, called with its body and the message, which it may not want
    results: type | None = None  #: of the results of its flow that it is called with too


def typed_call(function: HandlerFunction, what: str, bare: Any = Message) -> TypedCall | None:
    """Return how the function is called with a typed body; None if it takes only the message.

    `bare`: the type of a parameter without annotation. A parameter with a default keeps it, unless it is the first one
    or takes the message. Raises InvalidHandler.
    """
    signature = _signature(function)
    if signature is None:
        return None
    given: dict[str, Any] = {}  # type by name
    for place, one in enumerate(signature.parameters.values()):
        if place == 0 or (one.default is one.empty and one.kind not in _VARIADIC):
            given[one.name] = _type_of(function, one, bare, what)
        elif _may_take_message(function, one, what):
            given[one.name] = Message
    shown = f"{what} is {name_of(function)}{signature}"
    results = [name for name, kind in given.items() if _is_results(kind)]
    bodies = [name for name, kind in given.items() if not _is_message(kind) and name not in results]
    if results:
        return _with_results(function, signature, shown, given, bodies, results)
    if not bodies:
        return None
    others = [signature.parameters[name].annotation for name in given if name not in bodies]
    if len(bodies) > 1 or len(others) > 1 or any(one in _ANYTHING for one in others):
        raise InvalidHandler(
            f"{shown}: it can take one body, annotated with its type, and the message, annotated with reliq.Message"
        )
    return TypedCall(_reader(shown, bodies[0], given[bodies[0]]), _caller(function, signature, list(given), bodies[0]))


def _reader(shown: str, name: str, kind: Any, make: Callable[[Any], Reader] = body_reader_of) -> Reader:
    """Return what reads a parameter of this name and type; raises InvalidHandler, which begins with `shown`."""
    try:
        return make(kind)
    except Exception as error:  # noqa: BLE001  of msgspec or pydantic
        raise InvalidHandler(f"{shown}, and the type of {name} is unsuitable: {error}") from None


def _with_results(
    function: HandlerFunction,
    signature: inspect.Signature,
    shown: str,
    given: dict[str, Any],
    bodies: list[str],
    results: list[str],
) -> TypedCall:
    """Return the call of a function that takes results, by the names of its parameters."""
    messages = [name for name in given if name not in bodies and name not in results]
    if any(len(one) > 1 for one in (bodies, results, messages)):
        raise InvalidHandler(
            f"{shown}: it can take one body, one reliq.Results[...] and the message, annotated with reliq.Message"
        )
    (kind,) = get_args(given[results[0]]) or (Any,)
    if kind not in (Any, bytes):
        _reader(shown, results[0], kind, reader_of)
    read = _reader(shown, bodies[0], given[bodies[0]]) if bodies else None
    called = _by_names(function, signature)

    def call(body: Any, message: Message, found: list[Any]) -> Any:
        values = dict.fromkeys(bodies, body) | dict.fromkeys(messages, message)
        return called(values | {results[0]: Results(found)})

    return TypedCall(read, call, kind)


def _is_results(kind: Any) -> bool:
    return kind is Results or get_origin(kind) is Results


def _caller(
    function: HandlerFunction, signature: inspect.Signature, given: list[str], body: str
) -> Callable[[Any, Message], Any]:
    """Return a call of the function with its body and its message, in whichever order and form it takes them."""
    first = list(signature.parameters.values())[: len(given)]
    if [one.name for one in first if one.kind in _BY_PLACE] != given:
        call = _by_names(function, signature)
        return lambda value, message: call({name: value if name == body else message for name in given})
    if len(given) == 1:
        return lambda value, _: function(value)
    return function if given[0] == body else lambda value, message: function(message, value)


def _by_names(function: HandlerFunction, signature: inspect.Signature) -> Callable[[dict[str, Any]], Any]:
    """Return a call of the function with values by the names of its parameters, also of those with only a place."""
    by_place = [one for one in signature.parameters.values() if one.kind is one.POSITIONAL_ONLY]
    if not by_place:
        return lambda values: function(**values)
    names = {one.name for one in by_place}

    def call(values: dict[str, Any]) -> Any:
        places = [values.get(one.name, one.default) for one in by_place]
        return function(*places, **{name: value for name, value in values.items() if name not in names})

    return call


def _type_of(function: HandlerFunction, parameter: inspect.Parameter, bare: Any, what: str) -> Any:
    """Return the type of a parameter, `bare` if it has none or may be anything."""
    annotation = parameter.annotation
    if annotation in _ANYTHING:
        return bare
    try:
        holder = SimpleNamespace(__annotations__={"type": annotation})
        kind = get_type_hints(holder, _globals_of(function), include_extras=True)["type"]
    except Exception as error:  # noqa: BLE001  an annotation may raise anything
        if isinstance(annotation, str) and _MESSAGE.fullmatch(annotation.strip(" '\"")):
            return Message  # imported for type checkers only
        raise InvalidHandler(
            f"{what} is {name_of(function)}, and the annotation {annotation!r} of {parameter.name} cannot be "
            f"evaluated: {error}; define or import the type in the module itself, not in a function and not under "
            "TYPE_CHECKING"
        ) from None
    return bare if kind in (Any, object) else kind


def _may_take_message(function: HandlerFunction, parameter: inspect.Parameter, what: str) -> bool:
    """Whether a parameter with a default is annotated as the message."""
    try:
        return _is_message(_type_of(function, parameter, Any, what))
    except InvalidHandler:
        return False


def _is_message(kind: Any) -> bool:
    """Whether a parameter of this type takes the message: `Message`, or that or None."""
    if get_origin(kind) in (Union, UnionType):
        kinds = [one for one in get_args(kind) if one is not NoneType]
        return len(kinds) == 1 and _is_message(kinds[0])
    return isinstance(kind, type) and issubclass(kind, Message)


def _globals_of(function: Any) -> dict[str, Any]:
    """Return the names that the annotations of a function were written with."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    if isinstance(function, type):  # its __init__ is called
        return vars(sys.modules.get(function.__module__, function))
    function = getattr(function, "__func__", function)  # of a method
    if not hasattr(function, "__globals__"):
        function = type(function).__call__
    return getattr(inspect.unwrap(function), "__globals__", {})


def check_callable(function: object, what: str, *arguments: str) -> None:
    """Raise InvalidHandler unless the function can be called with these positional arguments."""
    check_runs(function, what)
    signature = _signature(function)
    try:
        if signature is not None:
            signature.bind(*arguments)
    except TypeError as error:
        given = " and ".join(arguments)
        must = _OF_HANDLERS if arguments == ("the message",) else _COUNTS[len(arguments)]
        raise InvalidHandler(
            f"{what} is {name_of(function)}{signature}, which cannot be called with {given}: {error}; "
            f"it must take {must}"
        ) from None


def check_runs(function: object, what: str) -> None:
    """Raise InvalidHandler unless a call of this runs something."""
    if not callable(function):
        raise InvalidHandler(f"{what} is {function!r}, which is not a function")
    if _runs(inspect.isgeneratorfunction, function) or _runs(inspect.isasyncgenfunction, function):
        raise InvalidHandler(f"{what} is {name_of(function)}, a generator: a call runs none of it; remove its yield")


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return None


def is_async(function: HandlerFunction) -> bool:
    """Whether a call of the function must be awaited."""
    return _runs(inspect.iscoroutinefunction, function)


def _runs(is_kind: Callable[[Any], bool], function: Any) -> bool:
    """Whether a call runs a function of this kind, also behind a partial, a static method and an object's `__call__`.

    `__call__` is looked up on the class.
    """
    while isinstance(function, (functools.partial, staticmethod)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return is_kind(function) or is_kind(type(function).__call__)


def check_called(given: object, decorator: str, arguments: str) -> None:
    """Raise InvalidName if a decorator was not called: then it gets the function in place of its argument.

    `arguments`: an example of them, {} in it for the name of the function.
    """
    if callable(given):
        name = name_of(given).rpartition(".")[2]
        call = f"@app.{decorator}({arguments.format(name)})"
        raise InvalidName(f"@app.{decorator} above {name} is not called: write {call}")


def name_of(function: object) -> str:
    """Return the name of a function, for an error or a log."""
    return getattr(function, "__qualname__", repr(function))


def refuse_unrun(result: object) -> None:
    """Raise TypeError if a handler's result is most likely meant otherwise; an ack would lose the message.

    It is work that has not run (a coroutine, an awaitable or a generator), Retry or Dead, or the class Again.
    """
    kind = type(result)
    if isinstance(result, CoroutineType):
        result.close()
        raise TypeError("the handler returned a coroutine that is never awaited: make the handler an async def")
    if hasattr(kind, "__await__"):
        raise TypeError(
            f"the handler returned an awaitable of type {kind.__name__}, which is never awaited: make the handler an "
            "async def and await it there"
        )
    if isinstance(result, (GeneratorType, AsyncGeneratorType)):
        raise TypeError("the handler returned a generator, of which nothing has run: loop over it in the handler")
    if isinstance(result, (Retry, Dead)) or result is Retry or result is Dead:
        raise TypeError(f"the handler returned reliq.{getattr(result, '__name__', kind.__name__)}: raise it")
    if result is Again:
        raise TypeError("the handler returned the class reliq.Again: return reliq.Again()")
