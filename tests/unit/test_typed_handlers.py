"""Handlers with an annotated body: how they are called, what fits, and what is refused when they are registered."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

import reliq
from reliq.errors import InvalidBody, InvalidHandler, InvalidMessage
from reliq.model.body_types import reader_of
from reliq.model.element import first_element
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage, encode_body

if TYPE_CHECKING:
    import reliq as rq


class Colour(Enum):
    RED = "red"


class Size(StrEnum):
    LARGE = "large"


OrderId = NewType("OrderId", str)


class Line(msgspec.Struct):
    sku: str
    price: Decimal


@dataclass
class Order:
    number: int
    lines: list[Line] = field(default_factory=list)
    note: str | None = None


class Shipment(msgspec.Struct):
    order: Order
    at: datetime
    id: UUID
    colour: Colour = Colour.RED


@dataclass
class Visit:
    number: int


class Customer(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    age: Annotated[int, pydantic.Field(ge=0)] = 0
    visits: list[Visit] = []


@pydantic.dataclasses.dataclass
class Address:
    street: str
    number: int


@dataclass
class Party:
    host: Customer
    guests: "list[Party | Customer]" = field(default_factory=list)


class Point(NamedTuple):
    x: int
    y: int


class Paid(msgspec.Struct, tag="paid"):
    amount: int


class Refused(msgspec.Struct, tag="refused"):
    reason: str


class Settings(TypedDict):
    debug: bool


class Unknown:
    """A class that is no type of a body."""


@dataclass
class Holder:
    thing: Unknown


ORDER = Order(1, [Line("a", Decimal("9.90"))], "grüße")
MOMENT = datetime(2026, 11, 22, tzinfo=UTC)
BODIES: list[tuple[Any, Any]] = [
    (Order, ORDER),
    (Optional[Order], ORDER),  # noqa: UP045
    (Order | None, None),
    (Order | None, b""),
    (Customer | None, b""),
    (Shipment, Shipment(ORDER, MOMENT, UUID(int=7))),
    (Customer, Customer(fullName="ann", visits=[Visit(1)])),
    (Customer | None, Customer(fullName="ann")),
    (Party, Party(Customer(fullName="ann"), [Party(Customer(fullName="bob"))])),
    (list[Customer], [Customer(fullName="ann"), Customer(fullName="bob", age=9)]),
    (Address, Address("long", 7)),
    (Point, Point(1, 2)),
    (Paid | Refused, Refused("no")),
    (Settings, {"debug": True}),
    (dict[str, Order], {"one": ORDER}),
    (list[int], [1, 2]),
    (Literal["a", "b"], json.dumps("b").encode()),
]


@pytest.fixture
def app() -> reliq.Reliq:
    return reliq.Reliq("redis://localhost:1/0")


def message_of(body: Any) -> Message:
    return Message.decode("orders", first_element("id", 0, {}, encode_body(body), None))


def call(app: reliq.Reliq, function: Callable[..., Any], body: Any) -> Any:
    """Register the function, and call it with a message as a worker does."""
    app.handler("orders")(function)
    (handler,) = app.handlers
    assert handler.typed is not None
    assert handler.typed.read is not None
    message = message_of(body)
    return handler.typed.call(handler.typed.read(message.body), message)


@pytest.mark.parametrize(("kind", "body"), BODIES, ids=lambda one: getattr(one, "__name__", str(one))[:40])
def test_what_is_sent_is_what_the_handler_gets(app, kind, body):
    def handle(body):
        return body

    handle.__annotations__["body"] = kind
    expected = json.loads(body or b"null") if isinstance(body, bytes) else body
    got = call(app, handle, body)
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(
    ("kind", "body", "got"),
    [
        (Size, Size.LARGE, Size.LARGE),
        (Size, b'"large"', Size.LARGE),
        (Size | None, "large", Size.LARGE),
        (Size | None, b"", None),
        (Colour, "red", Colour.RED),
        (Literal["a", "1"], "1", "1"),
        (Annotated[Literal["a"], "a letter"], "a", "a"),
        (UUID, str(UUID(int=1)), UUID(int=1)),
    ],
)
def test_a_body_that_is_a_text_by_itself_is_read(app, kind, body, got):
    def handle(body):
        return body

    handle.__annotations__["body"] = kind
    assert call(app, handle, body) == got


@pytest.mark.parametrize(
    ("kind", "body", "problem"),
    [
        (Size, "huge", "the body does not fit Size, at $: Invalid enum value 'huge'"),
        (Size, b'"huge"', "Invalid enum value 'huge'"),
        (Size, b"7", "Expected `str`, got `int`"),
        (Size, b"\xff", "the body does not fit Size, at $: JSON is malformed"),
        (Size, b"", "it is empty"),
        (Colour | int, "blue", "Invalid enum value 'blue'"),
        (Literal["a", "1"], "b", "Invalid enum value 'b'"),
        (UUID | None, "no id", "Invalid UUID"),
        (datetime, "today", "Invalid RFC3339 encoded datetime"),
        (int, "seven", "JSON is malformed"),
        (Order, "seven", "JSON is malformed"),
        (Order, '{"number": 7', "truncated"),
        (Order | Size, '{"number": 7', "truncated"),
        (str | int, "a", "JSON is malformed"),
    ],
)
def test_any_other_text_does_not_fit(app, kind, body, problem):
    def handle(body): ...

    handle.__annotations__["body"] = kind
    with pytest.raises(InvalidBody) as caught:
        call(app, handle, body)
    assert problem in str(caught.value)


def body_only(order: Order):
    return order, None


def body_first(order: Order, message: reliq.Message):
    return order, message


def message_first(message: Message, order: Order):
    return order, message


def by_place(order: Order, message: Message, /):
    return order, message


def by_name(order: Order, *, message: Message):
    return order, message


def body_by_name(message: Message, *, order: Order):
    return order, message


def half_by_place(message: Message, /, *, order: Order):
    return order, message


def past_a_default(order: Order, dry: bool = False, message: Message | None = None, /):
    assert not dry
    return order, message


def optional_message(order: Order, dry: bool = False, message: Message | None = None):
    assert not dry
    return order, message


def own_default(order: Order = ORDER, shop: str = "eu"):
    assert shop == "eu"
    return order, None


def forward(order: "Order", message: "reliq.Message"):
    return order, message


def for_type_checkers_only(order: Order, message: "rq.Message"):
    return order, message


def with_shop(shop: str, order: Order):
    assert shop == "eu"
    return order, None


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Shop:
    def ship(self, order: "Order", message: Message):
        return order, message

    def __call__(self, order: "Order"):
        return order, None

    @staticmethod
    def static(order: Order):
        return order, None

    @classmethod
    def of_class(cls, order: Order, message: Message):
        return order, message


FUNCTIONS = [
    body_only, body_first, message_first, by_place, by_name, body_by_name, half_by_place, past_a_default,
    optional_message, own_default, forward, for_type_checkers_only,
    Shop().ship, Shop(), Shop.static, staticmethod(body_first), Shop.of_class,
    decorated(body_first), functools.partial(with_shop, "eu"),
    functools.partial(decorated(forward)), decorated(functools.partial(with_shop, "eu")),
]  # fmt: skip


@pytest.mark.parametrize(
    "function", FUNCTIONS, ids=lambda function: getattr(function, "__name__", type(function).__name__)
)
def test_a_typed_handler_is_called_with_its_body_and_its_message(app, function):
    order, message = call(app, function, ORDER)
    assert order == ORDER
    assert message is None or message.id == "id"


def all_by_place(order: Order, message: Message, parts: reliq.Results[int], /):
    return order, message, parts


def results_alone(parts: reliq.Results[int], /):
    return None, None, parts


@pytest.mark.parametrize("function", [all_by_place, results_alone])
def test_results_may_be_taken_by_place(app, function):
    app.handler("orders")(function)
    (handler,) = app.handlers
    order, message, parts = handler.typed.call(ORDER, message_of(ORDER), [1, 2])
    assert parts == [1, 2]
    assert order in (ORDER, None)
    assert message is None or message.id == "id"


class Parcel:
    def __init__(self, order: "Order"):
        self.order = order


def test_a_class_may_be_a_handler(app):
    assert call(app, Parcel, ORDER).order == ORDER


def test_a_message_imported_for_type_checkers_only_is_the_message(app):
    def alone(message: "rq.Message"):
        """As linters ask for it."""

    app.handler("mails")(alone)
    assert next(iter(app.handlers)).typed is None


@pytest.mark.parametrize("kind", [Message, "Message", "reliq.Message", Message | None, Any, object, "Any"])
def test_annotations_that_name_no_body_mean_the_message(app, kind):
    def handle(message):
        """The only argument."""

    handle.__annotations__["message"] = kind
    app.handler("orders")(handle)
    assert next(iter(app.handlers)).typed is None


@pytest.mark.parametrize(
    ("kind", "body", "path", "problem"),
    [
        (Order, {"number": "7"}, "$.number", "Expected `int`, got `str`"),
        (Order, {}, "$", "Object missing required field `number`"),
        (Order, {"number": 1, "lines": [{"sku": "a", "price": "1"}, {"sku": 2}]}, "$.lines[1].sku", "got `int`"),
        (Shipment, {"order": {"number": None}}, "$.order.number", "got `null`"),
        (Order, b"", "$", "it is empty"),
        (Order, b"{", "$", "truncated"),
        (Order, b"\xff", "$", ""),
        (Order, b'{"note": "\xff"}', "$", ""),
        (Order, b"[" * 100_000, "$", "Expected `object`, got `array`"),
        (dict[str, Any], b'{"a":' * 100_000, "$", ""),
        (Paid | Refused, {"type": "other"}, "$.type", "Invalid value"),
        (Customer, {"fullName": 1}, "$.fullName", "valid string"),
        (Customer, {"fullName": "a", "age": -1}, "$.age", "greater than or equal to 0"),
        (Customer, {"fullName": "a", "visits": [{"number": 1}, {}]}, "$.visits[1].number", "required"),
        (Customer, b"", "$", "it is empty"),
        (Customer, b"no", "$", "Invalid JSON"),
        (Address, {"street": "a"}, "$.number", "required"),
    ],
)
def test_what_does_not_fit_names_the_path(kind, body, path, problem):
    read = reader_of(kind)
    with pytest.raises(InvalidBody) as caught:
        read(encode_body(body))
    assert caught.value.path == path
    assert f", at {path}: " in str(caught.value)
    assert problem in str(caught.value)


@pytest.mark.parametrize("way", ["handler", "broadcast", "check"])
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda: None, "missing|too many"),
        (eval("lambda order, customer: None"), "missing a required argument"),
    ],
)  # fmt: skip
def test_what_takes_nothing_typed_is_refused_as_before(app, way, function, problem):
    with pytest.raises(InvalidHandler, match=problem):
        register(app, way)(function)


def register(app, way):
    return {"handler": app.handler("q"), "broadcast": app.broadcast("a.#"), "check": app.check("q")}[way]


def two_bodies(order: Order, customer: Customer): ...
def three(order: Order, message: Message, shop): ...
def bare(order: Order, message): ...
def unknown(order: Unknown): ...
def inside(order: Holder): ...
def text(order: str): ...
def raw(order: bytes): ...
def renamed(order: OrderId): ...
def annotated(order: Annotated[str, msgspec.Meta(min_length=2)]): ...
def optional(order: OrderId | None): ...
def undefined(order: "Nowhere"): ...  # type: ignore[name-defined]  # noqa: F821
def mixed(order: dict[Customer, Unknown]): ...


@pytest.mark.parametrize("way", ["handler", "broadcast", "check"])
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (two_bodies, "two_bodies(order: .*Order, customer: .*Customer): it can take one body"),
        (three, "it can take one body"),
        (bare, "it can take one body"),
        (Shop.ship, "it can take one body"),
        (unknown, "type of order is unsuitable: Unknown is not a type that JSON can be read into"),
        (inside, "Unknown is not a type that JSON"),
        (text, "take the reliq.Message and read message.body"),
        (raw, "take the reliq.Message and read message.body"),
        (renamed, "take the reliq.Message and read message.body"),
        (annotated, "take the reliq.Message and read message.body"),
        (optional, "take the reliq.Message and read message.body"),
        (undefined, "annotation 'Nowhere' of order cannot be evaluated: name 'Nowhere' is not defined"),
        (mixed, "type of order is unsuitable"),
    ],
)
def test_an_annotation_that_cannot_be_a_body_is_refused_at_once(app, way, function, problem):
    with pytest.raises(InvalidHandler, match=problem.replace("(order", r"\(order").replace("er):", r"er\):")):
        register(app, way)(function)


def test_a_hook_of_dead_letters_takes_the_message(app):
    with pytest.raises(InvalidHandler, match=r"must take a reliq\.Message"):
        app.on_dead("orders")(body_only)


def test_a_typed_object_may_be_inside_json_and_a_message():
    assert encode_body({"order": ORDER}) == encode_body({"order": msgspec.to_builtins(ORDER)})
    assert NewMessage(ORDER).body == encode_body(ORDER)
    assert json.loads(encode_body(Customer(fullName="ann"))) == {"fullName": "ann", "age": 0, "visits": []}
    assert json.loads(encode_body(Shipment(ORDER, MOMENT, UUID(int=7))))["at"] == "2026-11-22T00:00:00Z"


@dataclass
class Number:
    value: float


@pytest.mark.parametrize("body", [Unknown(), Holder(Unknown()), Order, {"at": MOMENT}, Number(float("nan"))])
def test_what_is_not_json_is_refused_as_before(body):
    with pytest.raises(InvalidMessage, match="neither bytes, text nor JSON"):
        encode_body(body)


class Reading(pydantic.BaseModel):
    value: float = 0.0
    raw: bytes = b""


@pytest.mark.parametrize(
    ("reading", "why"),
    [
        (Reading(value=float("nan")), "$.at[0].value is nan, which JSON does not have"),
        (Reading(raw=b"\xff"), "pydantic makes no JSON of $.at[0]: .*utf-8"),
    ],
)
def test_what_in_a_pydantic_model_is_not_json_is_named(reading, why):
    with pytest.raises(InvalidMessage, match=why.replace("$", r"\$").replace("[0]", r"\[0\]")):
        encode_body({"at": [reading]})


@pytest.mark.parametrize("body", [b'"\xff"', b"[" * 100_000])
def test_a_body_that_is_not_json_is_an_invalid_message_whatever_the_reason(body):
    with pytest.raises(InvalidMessage, match="is not JSON"):
        message_of(body).json()


def test_pydantic_is_loaded_only_for_a_model():
    code = (
        "import sys, dataclasses, reliq, reliq.worker\n"
        "Order = dataclasses.make_dataclass('Order', [('number', int)])\n"
        "def ship(order): ...\n"
        "ship.__annotations__['order'] = Order\n"
        "reliq.Reliq('redis://localhost').handler('orders')(ship)\n"
        "reliq.NewMessage(Order(1))\n"
        "print('pydantic' in sys.modules, 'reliq.otel' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
