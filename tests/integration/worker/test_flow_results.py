"""Results of the messages before one in its flow, as an argument of a typed handler."""

import threading
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NewType
from uuid import UUID

import pytest

import reliq
from tests.support.handlers import settled, working_as
from tests.support.workers import eventually


@dataclass
class Order:
    number: int


@dataclass
class Part:
    name: str
    grams: int


class Size(StrEnum):
    LARGE = "large"


OrderId = NewType("OrderId", str)


@pytest.fixture
def found(app, kind):
    """What the handler of `q` has got; that of `parts` returns a part, or bytes, and dies if it is to."""
    seen: list[object] = []

    @app.handler("parts", result="1h")
    def part(message: reliq.Message):
        body = message.json()["part"]
        if body == "dies":
            raise reliq.Dead("as it should")
        return b"raw" if body == "raw" else Part(f"part {body}", 7)

    return seen


def bind(app, kind, seen, annotation):
    def assemble(order, parts, message):
        seen.append((order.number, parts, message.deliveries))

    async def assemble_async(message, parts, order):
        assemble(order, parts, message)

    handle = assemble_async if kind == "async" else assemble
    handle.__annotations__ = {"order": Order, "parts": annotation, "message": reliq.Message}
    app.handler("q")(handle)


def send(app, *parts, **options):
    with app.flow() as flow:
        before = [flow.send("parts", {"part": part}) for part in parts]
        flow.send("q", {"number": 1}, after=before, **options)


def run(app, kind, until):
    with working_as(kind, app, monitor=True):
        eventually(until)


def test_a_typed_handler_takes_results_in_their_order(app, client, kind, found):
    bind(app, kind, found, reliq.Results[Part])
    send(app, 2, 1)
    run(app, kind, lambda: found)
    assert found == [(1, [Part("part 2", 7), Part("part 1", 7)], 0)]
    assert type(found[0][1]) is reliq.Results


@pytest.mark.parametrize(
    ("annotation", "part", "expected"),
    [
        (reliq.Results, 1, {"name": "part 1", "grams": 7}),
        (reliq.Results[dict[str, str | int]], 1, {"name": "part 1", "grams": 7}),
        (reliq.Results[bytes], "raw", b"raw"),
    ],
)
def test_results_of_other_types(app, client, kind, found, annotation, part, expected):
    bind(app, kind, found, annotation)
    send(app, part)
    run(app, kind, lambda: found)
    assert found == [(1, [expected], 0)]


@pytest.mark.parametrize("kind", ["inline"], indirect=True)
@pytest.mark.parametrize(
    ("annotation", "returned", "expected"),
    [
        (str, "text", "text"),
        (str | None, "text", "text"),
        (str | None, None, None),
        (OrderId, OrderId("number 7"), "number 7"),
        (OrderId | None, "null", "null"),
        (Size, Size.LARGE, Size.LARGE),
        (Literal["a", "1"], "1", "1"),
        (UUID, UUID(int=1), UUID(int=1)),
    ],
)
def test_results_that_are_texts_are_read(app, client, kind, annotation: Any, returned: Any, expected: Any):
    seen: list[Any] = []

    @app.handler("parts", result="1h")
    def part(message: reliq.Message):
        return returned

    bind(app, kind, seen, reliq.Results[annotation])
    send(app, 1)
    run(app, kind, lambda: seen)
    assert seen == [(1, [expected], 0)]


def test_the_result_of_a_failed_member_is_none(app, client, kind, found):
    bind(app, kind, found, reliq.Results[Part])
    send(app, "dies", 1, on_failure="run")
    run(app, kind, lambda: found)
    assert found == [(1, [None, Part("part 1", 7)], 0)]


def test_a_message_of_no_flow_has_none(app, client, kind, found):
    bind(app, kind, found, reliq.Results[Part])
    app.queue("q").send({"number": 5})
    run(app, kind, lambda: found)
    assert found == [(5, [], 0)]


def test_a_result_that_is_not_kept_makes_a_dead_letter_that_says_what_to_do(app, client, kind):
    seen: list[object] = []

    @app.handler("parts")
    def part(message: reliq.Message):
        return Part("none keeps it", 7)

    bind(app, kind, seen, reliq.Results[Part])
    send(app, 1)
    run(app, kind, lambda: app.queue("q").stats().dead and settled(app))
    (letter,) = app.queue("q").dead.list()
    assert (letter.reason, seen) == ("invalid", [])
    assert "give the handler of 'parts' result=\"7d\"" in letter.errors[-1].text


def test_a_result_that_does_not_fit_makes_a_dead_letter(app, client, kind, found):
    bind(app, kind, found, reliq.Results[Order])
    send(app, 1, "raw")
    run(app, kind, lambda: app.queue("q").stats().dead)
    (letter,) = app.queue("q").dead.list()
    assert (letter.reason, found) == ("invalid", [])
    assert "a result of the messages before this one in the flow" in letter.errors[-1].text


def test_a_handler_may_take_results_alone(app, client, kind, found):
    if kind == "async":

        @app.handler("q")
        async def alone_async(parts: reliq.Results[Part]):
            found.append(parts)

    else:

        @app.handler("q")
        def alone(parts: reliq.Results[Part]):
            found.append(parts)

    send(app, 1)
    run(app, kind, lambda: found)
    assert found == [[Part("part 1", 7)]]


@pytest.mark.parametrize("number", ["1", "0", "abc", "²", "9" * 5000])
def test_whoever_sends_headers_of_a_flow_is_not_of_it(app, number):
    """Anyone who may send to a queue may give any headers: they open neither results nor flows of others."""
    with app.flow() as flow:
        flow.send("q", "of the flow", after=flow.send("parts", "first"))
    app.queue("other").send("forged", headers={"flow": flow.id, "flow-member": number})
    with app.queue("other").consumer() as consumer:
        (message,) = consumer.claim()
        if number in "01":
            with pytest.raises(reliq.ReliqError, match=f"is not of flow {flow.id}, which its headers name"):
                message.results()
        else:
            assert message.results() == []
        with app.flow(parent=message) as inner:
            inner.send("parts", "x")
        assert [one.flows for one in app.flow_progress(flow.id).members] == [(), ()]
        consumer.ack(message)


def test_what_cannot_be_a_result_is_refused_where_the_handler_is_bound(app):
    with pytest.raises(reliq.errors.InvalidHandler, match="the type of parts is unsuitable"):
        bind(app, "inline", [], reliq.Results[threading.Lock])
    with pytest.raises(reliq.errors.InvalidHandler, match="the type of parts is unsuitable: bytearray"):
        bind(app, "inline", [], reliq.Results[bytearray])
    with pytest.raises(reliq.errors.InvalidHandler, match=r"one body, one reliq\.Results"):

        @app.handler("q")
        def two(parts: reliq.Results[Part], others: reliq.Results[Part]):
            pass

    assert [*app.handlers] == []
