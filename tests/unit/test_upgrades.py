"""Upgrades of bodies: the steps from version to version, and the versions that sends note in the headers."""

from dataclasses import dataclass
from typing import Any

import pytest

import reliq
from reliq.errors import InvalidHandler, InvalidSetting
from reliq.features.batches.model import decode_end
from reliq.testing import fake, work_off


@dataclass
class OrderV1:
    customer: str


@dataclass
class OrderV2:
    customer: str
    country: str


@dataclass
class Order:
    customer: str
    countries: list[str]


@pytest.fixture
def shop() -> reliq.Reliq:
    app = fake(reliq.Reliq())

    @app.upgrade("orders", version=3)
    def several_countries(old: OrderV2) -> Order:
        return Order(old.customer, [old.country])

    @app.upgrade("orders", version=2)  # the order of the definitions does not matter
    def a_country(old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "country": "de"}

    return app


@pytest.fixture
def handled(shop) -> list[Any]:
    handled: list[Any] = []
    shop.handler("orders", retry=reliq.fixed("1h"))(typed(handled))
    return handled


def typed(handled: list[Any]) -> Any:
    def ship(order: Order, message: reliq.Message) -> None:
        handled.append((order, message.headers.get("body-version")))

    return ship


def versions(app: reliq.Reliq, queue: str = "orders") -> list[Any]:
    with app.queue(queue).consumer() as consumer:
        messages = consumer.claim(limit=10)
        consumer.ack(*messages)
    return [message.headers.get("body-version") for message in messages]


def letter(app: reliq.Reliq) -> reliq.DeadLetter:
    (letter,) = app.queue("orders").dead.list()
    return letter


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"customer": "ann"}, {"body-version": "1"}),
        ({"customer": "ann", "country": "de"}, {"body-version": "2"}),
        (Order("ann", ["de"]), {}),
        (Order("ann", ["de"]), {"body-version": "3"}),
    ],
)
def test_a_body_of_any_version_arrives_in_the_latest(shop, handled, body, headers):
    shop.queue("orders").send(body, headers=headers)
    assert work_off(shop) == 1
    assert handled == [(Order("ann", ["de"]), headers.get("body-version", "3"))]


def test_a_message_without_the_header_has_version_1(shop, handled):
    old = reliq.Reliq(store=shop.store)  # as an earlier release of the program
    old.queue("orders").send({"customer": "ann"})
    work_off(shop)
    assert handled == [(Order("ann", ["de"]), None)]


def test_a_handler_of_the_message_finds_the_latest_body_in_it(shop):
    handled = []
    shop.handler("orders")(lambda message: handled.append((message.json(), message.body)))
    shop.queue("orders").send({"customer": "ann"}, headers={"body-version": "1"})
    work_off(shop)
    assert handled == [({"customer": "ann", "countries": ["de"]}, b'{"customer":"ann","countries":["de"]}')]


@pytest.mark.parametrize(
    "send",
    [
        lambda app, body: app.queue("orders").send(body),
        lambda app, body: app.queue("orders").send(reliq.NewMessage(body)),
        lambda app, body: app.queue("orders").send_many([body]),
        lambda app, body: app.queue("orders").send_many([reliq.NewMessage(body)], delay=0),
        lambda app, body: app.queue("orders").prepare(body).commit(),
        lambda app, body: app.publish("order.new", body),
    ],
)
def test_what_this_application_sends_has_its_version(shop, send):
    shop.subscribe("orders", "order.#")
    send(shop, Order("ann", ["de"]))
    assert versions(shop) == ["3"]


def test_a_version_that_the_sender_gives_stays(shop):
    shop.queue("orders").send({"customer": "ann"}, headers={"body-version": "1", "mine": "kept"})
    shop.queue("orders").send_many([{"customer": "ann"}], headers={"body-version": "2"})
    assert versions(shop) == ["1", "2"]


def test_messages_of_a_queue_without_upgrades_have_no_version_header(shop):
    shop.queue("mails").send("x")
    shop.subscribe("mails", "mail")
    shop.publish("mail", "x")
    assert versions(shop, "mails") == [None, None]


def test_what_goes_to_queues_of_different_versions_needs_the_header(shop):
    shop.upgrade("audit", version=2)(lambda body: body)
    shop.subscribe("orders", "#")
    shop.subscribe("audit", "#")
    with pytest.raises(reliq.InvalidMessage, match=r"versions \[2, 3\]: give the one of this body in the header"):
        shop.publish("order", {"customer": "ann"})
    shop.publish("order", {"customer": "ann"}, headers={"body-version": "1"})
    assert versions(shop) == versions(shop, "audit") == ["1"]


def test_the_message_at_the_end_of_a_batch_has_the_version_of_its_body(shop):
    outer = shop.batch(on_done=("orders", {"customer": "ann"}))
    inner = outer.batch(on_dead=("orders", reliq.NewMessage("x", headers={"body-version": "1"})))
    (done, dead) = (decode_end(one) for one in (outer._steps._done, inner._steps._dead))
    assert (done.headers["body-version"], dead.headers["body-version"]) == ("3", "1")
    other = decode_end(shop.batch(on_done=("mails", "x"))._steps._done)
    assert other.headers == {}


def test_a_schedule_has_the_version_of_its_body(shop):
    definition = shop._schedules.define("nightly", "1h", "orders", b"{}", {"headers": {"mine": "kept"}})
    assert definition.headers == {"mine": "kept", "body-version": "3"}


def test_a_later_version_is_tried_again_until_a_newer_worker_takes_it(shop, handled):
    orders = shop.queue("orders")
    orders.send({"new": True}, headers={"body-version": "4"})
    assert work_off(shop) == 1
    (waiting,) = orders.delayed.list()
    assert "version 4, and this worker knows versions up to 3" in waiting.errors[-1].text
    assert (handled, orders.stats().dead) == ([], 0)


def test_a_later_version_does_not_reach_a_typed_handler_without_upgrades():
    handled: list[Any] = []
    shop = fake(reliq.Reliq())
    shop.handler("orders", retry=reliq.fixed("1h"), retry_on=KeyError)(typed(handled))
    shop.queue("orders").send({"new": True}, headers={"body-version": "2"})
    work_off(shop)
    assert (handled, shop.queue("orders").stats().delayed) == ([], 1)


@pytest.mark.parametrize(("died_in", "runs"), [("orders", 0), ("others", 1)])
def test_what_died_in_another_queue_has_the_version_of_that(died_in, runs):
    handled: list[Any] = []
    shop = fake(reliq.Reliq())
    shop.handler("orders", retry=reliq.fixed("1h"))(typed(handled))
    shop.queue("orders").send(
        {"customer": "ann", "countries": []}, headers={"body-version": "2", "reliq-dead-from": died_in}
    )
    work_off(shop)
    assert (len(handled), shop.queue("orders").stats().delayed) == (runs, 1 - runs)


def test_an_upgrade_that_raises_makes_a_dead_letter_with_the_body_as_it_was_sent(shop, handled):
    shop.upgrade("orders", version=4)(lambda body: {"no": body["nothing"]})
    shop.queue("orders").send({"customer": "ann"}, headers={"body-version": "1"})
    assert work_off(shop) == 1
    dead = letter(shop)
    assert (dead.reason, dead.failures, dead.json()) == ("invalid", 1, {"customer": "ann"})
    assert dead.headers == {"body-version": "1"}
    text = dead.errors[-1].text
    assert "the upgrade of queue 'orders' to version 4, " in text
    assert "failed: KeyError('nothing')" in text
    assert "in <lambda>" in text  # the traceback of the upgrade


def test_what_an_upgrade_cannot_read_names_the_path(shop, handled):
    shop.queue("orders").send({"customer": "ann"}, headers={"body-version": "2"})
    work_off(shop)
    assert "does not fit OrderV2, at $: Object missing required field `country`" in letter(shop).errors[-1].text


def test_an_upgrade_may_refuse_or_postpone(shop):
    def decide(body: dict[str, Any]) -> Any:
        raise reliq.Dead("too old") if body["customer"] == "ann" else reliq.Retry(delay="1h")

    shop.handler("orders")(lambda message: None)
    shop.upgrade("orders", version=4)(decide)
    for customer in ("ann", "bob"):
        shop.queue("orders").send(Order(customer, []), headers={"body-version": "3"})
    work_off(shop)
    assert letter(shop).reason == "rejected"
    assert shop.queue("orders").stats().delayed == 1


@pytest.mark.parametrize("version", ["0", "-1", "two", "", "1.0", "٣", "9" * 30])
def test_a_header_that_is_no_version_makes_a_dead_letter(shop, handled, version):
    shop.queue("orders").send({}, headers={"body-version": version})
    work_off(shop)
    assert letter(shop).reason == "invalid"
    assert "the header body-version is" in letter(shop).errors[-1].text


def test_a_version_that_is_left_out_is_refused_before_any_message_is_taken(shop, handled):
    shop.upgrade("orders", version=5)(lambda body: body)
    shop.queue("orders").send({}, headers={"body-version": "1"})
    with pytest.raises(InvalidHandler, match="an upgrade to version 5 and none to version 4"):
        work_off(shop)
    assert shop.queue("orders").stats().ready == 1


async def later(body: dict[str, Any]) -> None: ...
def generator(body: dict[str, Any]) -> Any:
    yield body


def of_the_message(message: reliq.Message) -> None: ...
def of_two(body: dict[str, Any], message: reliq.Message) -> None: ...
def of_text(body: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (later, "async function"),
        (generator, "a generator"),
        (of_the_message, "it must take the body"),
        (of_two, "cannot be called with the body"),
        (of_text, "type of body is unsuitable"),
        (7, "not a function"),
    ],
)
def test_a_function_that_is_no_upgrade_is_refused(shop, function, problem):
    with pytest.raises(InvalidHandler, match=problem):
        shop.upgrade("orders", version=4)(function)


def test_a_second_upgrade_to_a_version_and_an_impossible_one_are_refused(shop):
    with pytest.raises(InvalidHandler, match="to version 3 is defined twice"):
        shop.upgrade("orders", version=3)(lambda body: body)
    with pytest.raises(InvalidSetting, match="version is 1"):
        shop.upgrade("orders", version=1)(lambda body: body)
    with pytest.raises(reliq.InvalidName):
        shop.upgrade("}", version=2)
