"""The public Python names: signatures and docstrings, as griffe reads them from the source."""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[3]

#: Every name of `reliq.__all__` and of the other public modules is on exactly one page; a test compares.
GROUPS: dict[str, tuple[str, str, list[str]]] = {
    "application": (
        "Application and queues",
        "`reliq.aio` has the same classes with coroutines.",
        ["Reliq", "Queue", "Stats", "Config", "Prepared", "Received", "Cycle"],
    ),
    "messages": (
        "Messages and options",
        "What is sent, what a handler gets, and the options of calls.",
        ["Message", "NewMessage", "BatchOptions", "PublishOptions", "MessageOptions", "ConfigChanges"],
    ),
    "handlers": (
        "Handlers and back-offs",
        "A handler is registered with `Reliq.handler` on the page [Application](application.md).",
        [
            "Retry",
            "Dead",
            "Again",
            "Backoff",
            "fixed",
            "steps",
            "exponential",
            "rocketmq_levels",
            "breaker",
            "step",
            "StepFailed",
        ],
    ),
    "middleware": (
        "Middleware",
        "Code around handlers and sends: `Reliq.middleware` on the page [Application](application.md).",
        ["Middleware", "Sending"],
    ),
    "consumer": ("Consumer", "Claim and settle in your own code, without a worker.", ["Consumer"]),
    "dead-letters": (
        "Dead letters and delayed messages",
        "`queue.dead` and `queue.delayed`.",
        ["DeadLetters", "DeadLetter", "DeadLetterFilters", "Failure", "Delayed", "DelayedMessage", "DelayedPage"],
    ),
    "topics": ("Topics", "`app.topics`, beside `subscribe` and `publish`.", ["Topics", "Binding", "TopicStats"]),
    "life": (
        "The life of a message",
        "What `queue.find`, `queue.cancel` and `queue.cancel_many` return.",
        [
            "Found",
            "Place",
            "Progress",
            "Event",
            "Cancellation",
            "CancelledMany",
            "Batch",
            "BatchProgress",
            "Parked",
            "Chunk",
        ],
    ),
    "flows": (
        "Flows",
        "`app.flow` and `app.flow_progress`.",
        ["Flow", "FlowMember", "FlowMessage", "FlowProgress", "Results"],
    ),
    "schedules": ("Schedules", "`app.schedules`.", ["Schedules", "Schedule", "ScheduleOptions"]),
}
MODULES = {
    "testing": ("Testing", "reliq.testing"),
    "otel": ("OpenTelemetry", "reliq.otel"),
    "sql": ("SQL: outbox and handling once", "reliq.contrib.sql"),
    "embedded": ("Embedded Redis", "reliq.embedded"),
    "spark": ("Spark", "reliq.spark"),
}


def pages() -> dict[str, Callable[[], str]]:
    """Return the pages by name."""
    groups = {name: partial(_group, *group) for name, group in GROUPS.items()}
    return {**groups, **{name: partial(_module, *module) for name, module in MODULES.items()}}


@cache
def _package() -> griffe.Module:
    package = griffe.load("reliq", search_paths=[ROOT], submodules=True, resolve_aliases=True)
    assert isinstance(package, griffe.Module)
    return package


def _group(title: str, text: str, names: list[str]) -> str:
    return _joined(f"# {title}", text, *(part for name in names for part in _described(name, _package()[name])))


def _module(title: str, path: str) -> str:
    module = _package()[path.removeprefix("reliq.")]
    described = (part for name in public_names(path) for part in _described(name, module[name]))
    return _joined(f"# {title}", f"`import {path}`", _docstring(module), *described)


def _joined(*parts: str) -> str:
    return "\n\n".join(filter(None, parts)) + "\n"


def public_names(path: str) -> list[str]:
    """Return the public classes and functions that a module defines or lists in `__all__`."""
    module = _package()[path.removeprefix("reliq.")]
    names = module.exports or [
        name
        for name, one in module.members.items()
        if not name.startswith("_") and not one.is_alias and (one.is_class or one.is_function)
    ]
    return [str(name) for name in names]


def _described(name: str, found: griffe.Object | griffe.Alias, level: int = 2, owner: str = "") -> Iterator[str]:
    """Yield heading, signature, docstring; of a class, its attributes and methods too."""
    one = _itself(found)
    yield f"{'#' * level} `{name}`" + (f" {{ #{(owner + '.' + name).lower()} }}" if owner else "")
    yield _code(_declared(name, one))
    yield _docstring(one)
    if isinstance(one, griffe.Class):
        yield _fields(one)
        for member, value in one.all_members.items():
            if not member.startswith("_") and (value.is_function or "property" in value.labels):
                yield from _described(member, value, level + 1, name)


def _itself(found: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return what a name stands for, also of `breaker = Breaker`."""
    one = found.final_target if isinstance(found, griffe.Alias) else found
    if isinstance(one, griffe.Attribute) and one.parent and str(one.value) in one.parent.members:
        return _itself(one.parent.members[str(one.value)])
    return one


def _declared(name: str, one: griffe.Object) -> str:
    if isinstance(one, griffe.Class):
        return _constructor(name, one)
    if isinstance(one, griffe.Function):
        return f"{'async ' if 'async' in one.labels else ''}def {_signature(one, name)}"
    assert isinstance(one, griffe.Attribute)
    if one.value is None or "property" in one.labels:
        return f"{name}: {one.annotation}"
    return f"{name} = {one.value}"


def _constructor(name: str, one: griffe.Class) -> str:
    found = one.all_members.get("__init__")
    init = found.final_target if isinstance(found, griffe.Alias) else found
    typed = any("TypedDict" in str(base) or str(base).endswith("Options") for base in one.bases)
    if typed or not isinstance(init, griffe.Function):
        bases = ", ".join(str(base) for base in one.bases)
        return f"class {name}({bases})" if bases else f"class {name}"
    return f"class {_signature(init, name)}".removesuffix(" -> None")


def _signature(function: griffe.Function, name: str) -> str:
    """Return the signature without `self`, on several lines when it is long."""
    if function.parameters and function.parameters[0].name in ("self", "cls"):
        function = _without_self(function)
    text = str(function.signature(name=name)).removeprefix("async def ").removeprefix("def ")
    if len(text) <= 100:
        return text
    before, _, rest = text.partition("(")
    inside, _, after = rest.rpartition(")")
    return f"{before}(\n" + "".join(f"    {part},\n" for part in _split(inside)) + f"){after}"


def _without_self(function: griffe.Function) -> griffe.Function:
    parameters = griffe.Parameters(*list(function.parameters)[1:])
    return griffe.Function(function.name, parameters=parameters, returns=function.returns, parent=function.parent)


def _split(parameters: str) -> Iterator[str]:
    """Split at the commas between parameters, not at those inside of brackets."""
    depth, start = 0, 0
    for place, letter in enumerate(parameters):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield parameters[start:place].strip()
            start = place + 1
    yield parameters[start:].strip()


def _fields(one: griffe.Class) -> str:
    """Return the table of the public attributes that are declared in the class."""
    rows = []
    for name, value in one.all_members.items():
        attribute = value.final_target if isinstance(value, griffe.Alias) else value
        if not isinstance(attribute, griffe.Attribute) or name.startswith("_") or "property" in attribute.labels:
            continue
        if _remark(attribute) or (attribute.annotation and "dataclass" not in one.labels):  # its signature has them
            kind = f"`{attribute.annotation}`" if attribute.annotation else ""
            rows.append(f"| `{name}` | {kind} | {_remark(attribute)} |")
    return "\n".join(["| attribute | type | |", "|---|---|---|", *rows]) if rows else ""


def _remark(one: griffe.Attribute) -> str:
    """Return the text after `#:` on the line of an attribute, its docstring, or the text of its field."""
    if one.docstring:
        return " ".join(one.docstring.value.split())
    if text := re.search(r"_text\('(.+?)'[,)]", str(one.value)):
        return text[1]
    lines = one.lines_collection[one.filepath]  # type: ignore[index]
    return lines[(one.lineno or 1) - 1].partition("#: ")[2].strip()


def _docstring(one: griffe.Object) -> str:
    if not one.docstring:
        return ""
    parts = inspect.cleandoc(one.docstring.value).split("`")  # every second one is code
    return "`".join(part if number % 2 else part.replace("*", r"\*") for number, part in enumerate(parts))


def _code(text: str) -> str:
    return f"```python\n{text}\n```"
