"""Typed handlers in every kind of worker, on a real Redis."""

import asyncio
import runpy
import threading
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pydantic
import pytest

import reliq
from reliq import aio
from reliq.worker import Worker
from tests.integration.api.serving import own_process
from tests.support.handlers import KINDS, settled, working_as
from tests.support.workers import ROOT, eventually, process


@dataclass
class Order:
    number: int
    items: list[str] = field(default_factory=list)


class Mail(pydantic.BaseModel):
    to: str


class Ping(msgspec.Struct, tag=True):
    at: int


class Pong(msgspec.Struct, tag=True):
    at: int


def bind(app: reliq.Reliq, kind: str, handled: list[Any], **options: Any) -> None:
    def ship(order: Order, message: reliq.Message) -> None:
        handled.append((order, message.id))

    async def ship_async(message: reliq.Message, order: Order) -> None:
        await asyncio.sleep(0)
        ship(order, message)

    app.handler("q", **options)(ship_async if kind == "async" else ship)


@pytest.mark.parametrize("kind", KINDS)
def test_what_fits_is_handled_and_what_does_not_is_dead_at_once(app, kind):
    handled: list[Any] = []
    bind(app, kind, handled, retry=reliq.fixed("1h"), retry_on=OSError)
    queue = app.queue("q")
    large = Order(2, ["x" * 5000])
    ids = queue.send_many([Order(1), {"number": "one"}, large, b"no JSON", Order(3), {"number": 4, "items": [1]}])
    with working_as(kind, app):
        eventually(lambda: settled(app))
    assert sorted(handled, key=lambda one: one[0].number) == [(Order(1), ids[0]), (large, ids[2]), (Order(3), ids[4])]
    letters = {letter.id: letter for letter in queue.dead.list()}
    assert set(letters) == {ids[1], ids[3], ids[5]}
    assert {letter.reason for letter in letters.values()} == {"invalid"}
    error = letters[ids[5]].errors[-1]
    assert error.error_class == "reliq.errors.InvalidBody"
    assert error.text == "the body does not fit Order, at $.items[0]: Expected `str`, got `int`"
    counters = queue.stats().counters
    assert (counters["acked"], counters["dead:invalid"], counters.get("retried", 0)) == (3, 3, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_bodies_of_earlier_versions_are_upgraded_in_flight(app, kind, url):
    handled: list[Any] = []
    old = reliq.Reliq(url)
    first = old.queue("q").send_many([{"nr": number} for number in range(50)])
    old.close()
    bind(app, kind, handled)
    app.upgrade("q", version=2)(lambda body: {"number": body["nr"]})
    with working_as(kind, app):
        second = app.queue("q").send_many([Order(number) for number in range(50)])
        eventually(lambda: settled(app))
    assert sorted(one for _, one in handled) == sorted([*first, *second])
    assert sorted(order.number for order, _ in handled) == sorted([*range(50)] * 2)


def test_a_fixed_upgrade_and_a_redrive_handle_what_died(app):
    handled: list[Any] = []
    bind(app, "inline", handled)
    app.upgrade("q", version=2)(lambda body: {"number": body["gone"]})
    app.queue("q").send({"nr": 7}, headers={"body-version": "1"})
    with working_as("inline", app):
        eventually(lambda: app.queue("q").stats().dead == 1)
    fixed = reliq.Reliq(app.url)
    bind(fixed, "inline", handled)
    fixed.upgrade("q", version=2)(lambda body: {"number": body["nr"]})
    fixed.queue("q").dead.redrive(reason="invalid")
    with working_as("inline", fixed):
        eventually(lambda: handled)
    fixed.close()
    assert handled[0][0] == Order(7)


def test_a_typed_handler_that_fails_is_retried_by_its_policy(app):
    seen = []

    @app.handler("q", retry=reliq.fixed(0, limit=2))
    def ship(order: Order) -> None:
        seen.append(order)
        raise KeyError(order.number)

    app.queue("q").send(Order(1))
    with working_as("inline", app):
        eventually(lambda: app.queue("q").stats().dead == 1)
    assert seen == [Order(1)] * 3
    (letter,) = app.queue("q").dead.list()
    assert letter.reason == "max_failures"


def test_a_handler_that_runs_once_reads_its_body_too(app):
    handled = []

    @app.handler("q", once=True)
    def ship(order: Order) -> None:
        handled.append(order)

    for _ in range(2):
        app.queue("q").send(Order(1), id="mine")
        with working_as("inline", app):
            eventually(lambda: settled(app))
    assert handled == [Order(1)]


def test_a_broadcast_and_a_check_back_take_a_body(app):
    heard, asked = [], []

    @app.broadcast("mail.#")
    def hear(mail: Mail) -> None:
        heard.append(mail)

    @app.check("q")
    def sent(order: Order) -> bool:
        asked.append(order)
        return True

    app.queue("q").prepare(Order(1), timeout=0.1)
    with working_as("inline", app, monitor=True):
        eventually(app.topics.list)
        app.publish("mail.new", Mail(to="ann"))
        eventually(lambda: heard and app.queue("q").stats().ready == 1)
    assert (heard, asked) == ([Mail(to="ann")], [Order(1)])


def test_the_variant_of_a_union_is_found_by_its_tag(app):
    handled = []
    done = threading.Event()

    @app.handler("q")
    def handle(event: Ping | Pong) -> None:
        handled.append(event)
        if len(handled) == 2:
            done.set()

    app.queue("q").send_many([Ping(1), Pong(2)])
    with working_as("inline", app):
        assert done.wait(20)
    assert handled == [Ping(1), Pong(2)]


def test_asyncio_sends_and_publishes_typed_bodies(app, url):
    handled: list[Any] = []
    bind(app, "inline", handled)

    async def send():
        async with aio.Reliq(url) as shop:
            await shop.subscribe("q", "order.#")
            await shop.queue("q").send(Order(1))
            await shop.queue("q").send_many([Order(2), Order(3)], key="k")
            await shop.publish("order.new", Order(4))

    asyncio.run(send())
    with working_as("inline", app):
        eventually(lambda: settled(app))
    assert sorted(order.number for order, _ in handled) == [1, 2, 3, 4]


def test_json_over_http_arrives_typed(app):
    handled: list[Any] = []
    bind(app, "inline", handled)
    app.upgrade("q", version=2)(lambda body: {"number": body["nr"]})
    with own_process(app.url) as (_, client):
        path = "/v1/queues/q/messages"
        client.post(path, json={"body": {"nr": 1}}).raise_for_status()
        client.post(path, json={"body": {"number": 2}, "headers": {"body-version": "2"}}).raise_for_status()
        client.post(path, json={"body": {"number": "3"}, "headers": {"body-version": "2"}}).raise_for_status()
        with working_as("inline", app):
            eventually(lambda: settled(app))
        letters = client.get("/v1/queues/q/dead").json()
    assert [order for order, _ in handled] == [Order(1), Order(2)]
    assert [letter["reason"] for letter in letters["letters"]] == ["invalid"]


def test_a_worker_with_a_gap_in_its_upgrades_does_not_start(app):
    bind(app, "inline", [])
    app.upgrade("q", version=3)(lambda body: body)
    with pytest.raises(reliq.InvalidHandler, match="to version 3 and none to version 2"):
        Worker(app.store, app.handlers, reliq.worker.Options())


def test_the_command_says_so_in_one_sentence(url, tmp_path):
    (tmp_path / "gap.py").write_text(
        "import reliq\napp = reliq.Reliq()\napp.handler('q')(print)\napp.upgrade('q', version=3)(lambda body: body)\n"
    )
    with process("worker", "gap:app", "--url", url, folder=tmp_path) as child:
        _, errors = child.communicate(timeout=60)
    assert child.returncode == 2
    last = errors.decode().splitlines()[-1]  # a monitor may have said before that it leads
    assert last.startswith("reliq: queue 'q' has an upgrade to version 3 and none to version 2: add ")


def test_the_example_runs(app, monkeypatch, capsys):
    monkeypatch.setenv("RELIQ_URL", app.url)
    shop = runpy.run_path(str(ROOT / "examples" / "typed_orders.py"), run_name="__main__")["app"]
    with working_as("inline", shop):
        eventually(lambda: settled(shop, "orders"))
    shop.close()
    lines = [line.partition(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["shipping 1 to Bonn", "shipping 2 to Kiel"]
    assert [letter.reason for letter in app.queue("orders").dead.list()] == ["invalid"]
