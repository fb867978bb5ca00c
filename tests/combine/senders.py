"""The ways to send: each sends the messages of a story, and tells the model what it has done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import kombu
import sqlalchemy

import reliq
from reliq import NewMessage
from reliq.contrib import sql
from reliq.features.flows.model import OnFailure
from tests.combine import spark
from tests.combine.seen import Seen, look
from tests.integration.client.test_schedules import make_due
from tests.reference import flows, model
from tests.support.turns import Monitor

QUEUE = "q"
_LOW = 9  #: of kombu, as it is in a broker URL without options: `high` has no number there


@dataclass
class Sending:
    """What a way needs: reliq, the model, and the tools that stand around."""

    app: reliq.Reliq
    system: model.System
    monitor: Monitor
    service: Callable[[], httpx.Client]
    broker: Callable[[], kombu.Connection]
    client: Any
    on_failure: OnFailure = "fail"  #: of messages of flows

    def look(self) -> Seen:
        return look(self.client)

    @property
    def queue(self) -> model.Queue:
        return self.system.queue(QUEUE)

    def message(self, new: NewMessage, options: Mapping[str, Any], batch: str = "") -> model.Message:
        return model.Message(new.id, new.body, options, batch)


Plan = Sequence[tuple[bytes, Mapping[str, Any]]]  #: bodies, each with its options


def send(plan: Plan, to: Sending) -> None:
    for body, options in plan:
        new = NewMessage(body, **options)
        assert [to.app.queue(QUEUE).send(new)] == to.queue.send(to.message(new, options))


def send_many(plan: Plan, to: Sending) -> None:
    news = [NewMessage(body, **options) for body, options in plan]
    expected = to.queue.send(*(to.message(new, one[1]) for new, one in zip(news, plan, strict=True)))
    assert to.app.queue(QUEUE).send_many(news) == expected


def batch(plan: Plan, to: Sending, outer: str = "", within: Any = None) -> None:
    """In a batch, at the end of which a message follows."""
    done, dead = NewMessage(b"done"), NewMessage(b"dead")
    with (within or to.app).batch(on_done=("ends", done), on_dead=("ends", dead)) as one:
        ends = {name: ("ends", model.Message(new.id, new.body)) for name, new in (("done", done), ("dead", dead))}
        to.system.batches[one.id] = model.Batch(one.id, outer, ends)
        for body, options in plan:
            new = NewMessage(body, **options)
            assert [one.send(QUEUE, new)] == to.queue.send(to.message(new, options, one.id))
    to.system.batches[one.id].state = "closed"


def inner_batch(plan: Plan, to: Sending) -> None:
    """The same in a batch that waits for it."""
    done = NewMessage(b"outer")
    with to.app.batch(on_done=("ends", done)) as outer:
        ends = {"done": ("ends", model.Message(done.id, done.body))}
        to.system.batches[outer.id] = model.Batch(outer.id, "", ends)
        batch(plan, to, outer.id, outer)
    to.system.batches[outer.id].state = "closed"


def prepare(plan: Plan, to: Sending) -> None:
    for body, options in plan:
        new = NewMessage(body, **options)
        handle = to.app.queue(QUEUE).prepare(new)
        to.queue.prepare(to.message(new, options))
        assert handle.commit() == to.queue.commit(new.id)


def roll_back(plan: Plan, to: Sending) -> None:
    """The first one is rolled back, the others are committed."""
    (body, options), *others = plan
    new = NewMessage(body, **options)
    to.app.queue(QUEUE).prepare(new).rollback()
    to.queue.prepare(to.message(new, options))
    to.queue.roll_back(new.id)
    prepare(others, to)


def publish(plan: Plan, to: Sending) -> None:
    to.app.subscribe(QUEUE, "orders.#")
    for body, options in plan:
        new = NewMessage(body, **options)
        assert to.app.publish("orders.new", new) == {QUEUE: new.id}
        to.system.publish([QUEUE], to.message(new, options))


def schedule(plan: Plan, to: Sending) -> None:
    """A schedule for each message, all due at once."""
    for number, (body, options) in enumerate(plan):
        to.app.schedules.add(f"s{number}", "1h", QUEUE, body, **options)
        make_due(to.client, f"s{number}")
    assert to.monitor.send_ticks() == len(plan)
    for number, (body, options) in enumerate(plan):
        sent = to.app.schedules.get(f"s{number}").last_id
        to.system.tick(QUEUE, model.Message(sent, body, options))
        to.app.schedules.remove(f"s{number}")


def outbox(plan: Plan, to: Sending) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    sql.create_tables(engine)
    sent = []
    with engine.begin() as connection:
        for body, options in plan:
            identity = sql.enqueue(connection, QUEUE, body, **options)
            sent.append(model.Message(identity, body, options))
    assert sql.relay_once(engine, to.app) == len(plan)
    engine.dispose()
    for one in sent:
        to.queue.send(one)


def http(plan: Plan, to: Sending) -> None:
    for body, options in plan:
        new = NewMessage(body, **options)
        answer = to.service().post(
            f"/v1/queues/{QUEUE}/messages", json={"body": body.decode(), **options, "id": new.id}
        )
        assert answer.status_code in (200, 201), answer.text
        assert [answer.json()["id"]] == to.queue.send(to.message(new, options))


def by_kombu(plan: Plan, to: Sending) -> None:
    """As a program with kombu sends; it knows no ids, so they are read from the queue."""
    producer = kombu.Producer(to.broker())
    known = set(to.queue.messages)
    for body, options in plan:
        headers = dict(options.get("headers", {}))
        if "delay" in options:
            headers["x-delay"] = options["delay"] * 1000
        producer.publish(
            body, routing_key=QUEUE, declare=[kombu.Queue(QUEUE)], headers=headers, expiration=options.get("ttl"),
            priority=_LOW if options.get("priority") == "low" else None,
        )  # fmt: skip
        (identity,) = to.look().queues[QUEUE].places.keys() - known
        known.add(identity)
        to.queue.send(model.Message(identity, body, options))


def by_spark(plan: Plan, to: Sending) -> None:
    """As the rows of a job; each has an id, as the model must know it."""
    rows = [(body, {"id": NewMessage(body).id, **options}) for body, options in plan]
    spark.write(to.app.url, QUEUE, rows)
    for body, options in rows:
        to.queue.send(model.Message(options["id"], body, options))


_BEHIND = ((), (0,), (0, 1))  #: by number: for which others each of three messages waits


def flow(plan: Plan, to: Sending) -> None:
    """A first message, one behind it, and one behind both."""
    news, sent = [NewMessage(body, **options) for body, options in plan], list[reliq.FlowMessage]()
    with to.app.flow() as one:
        for new, before in zip(news, _BEHIND, strict=True):
            sent.append(one.send(QUEUE, new, after=[sent[other] for other in before], on_failure=to.on_failure))
    members = [flows.Member(QUEUE, new.id, before, to.on_failure) for new, before in zip(news, _BEHIND, strict=True)]
    messages = [to.message(new, options) for new, (_, options) in zip(news, plan, strict=True)]
    to.system.send_flow(flows.Flow(members, one.id), messages)


SENDERS: Mapping[str, Callable[[Plan, Sending], None]] = {
    "send": send, "send_many": send_many, "batch": batch, "inner batch": inner_batch, "prepare": prepare,
    "roll back": roll_back, "publish": publish, "schedule": schedule, "outbox": outbox, "http": http,
    "kombu": by_kombu, "spark": by_spark, "flow": flow,
}  # fmt: skip
