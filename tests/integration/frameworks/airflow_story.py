"""The story that `test_airflow` runs beside Airflow: provider, trigger, and Airflow's own stream manager."""

import asyncio
import os
import sys
import tempfile
import time

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp()

from airflow.providers.common.messaging.triggers.msg_queue import (
    MESSAGE_QUEUE_PROVIDERS,
    MessageQueueTrigger,
)
from airflow.triggers.shared_stream import SharedStreamManager, reject_shared_stream_event

import reliq
from reliq.aio.consumer import Consumer
from reliq.contrib.airflow import ReliqMessageQueueProvider, ReliqTrigger

URL = os.environ["RELIQ_URL"]
app = reliq.Reliq(URL)
orders = app.queue("orders")


def until(condition):
    ends = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ends, f"not within 20 s: {orders.stats()}"
        time.sleep(0.01)


async def eventually(condition):
    await asyncio.to_thread(until, condition)


def provider_is_found():
    assert any(isinstance(one, ReliqMessageQueueProvider) for one in MESSAGE_QUEUE_PROVIDERS), MESSAGE_QUEUE_PROVIDERS
    trigger = MessageQueueTrigger(scheme="reliq", queue_name="orders")
    assert trigger.serialize() == (
        "reliq.contrib.airflow.ReliqTrigger",
        {"queue_name": "orders", "url": "env:RELIQ_URL", "lease": 15.0},
    )
    assert ReliqMessageQueueProvider().queue_matches("reliq://orders")
    assert ReliqMessageQueueProvider().trigger_kwargs("reliq://orders") == {"queue_name": "orders"}


async def acked_when_stored():
    manager, trigger = SharedStreamManager(ack_timeout=60), ReliqTrigger("orders")
    key = trigger.shared_stream_key()
    events = trigger.filter_shared_stream(manager.subscribe(trigger_id=1, trigger=trigger, key=key))
    sent = [orders.send({"order": number}) for number in range(3)]
    for identity in sent[:2]:
        event = await asyncio.wait_for(anext(events), 20)
        assert (event.payload["id"], event.payload["queue"]) == (identity, "orders")
        stored = manager.bind_pending_event(trigger_id=1, key=key)
        if identity == sent[0]:
            first = stored
        assert orders.stats().counters.get("acked", 0) == 0
    manager.confirm_persisted([first])
    await eventually(lambda: orders.stats().counters.get("acked") == 1)
    await manager.stop_all()
    await eventually(lambda: (orders.stats().ready, orders.stats().processing) == (2, 0))


class Picky(ReliqTrigger):
    async def filter_shared_stream(self, shared_stream):
        async for _ in shared_stream:
            reject_shared_stream_event()
        yield  # pragma: no cover


async def rejected_is_dead():
    manager, trigger = SharedStreamManager(ack_timeout=60), Picky("orders")
    events = trigger.filter_shared_stream(
        manager.subscribe(trigger_id=2, trigger=trigger, key=trigger.shared_stream_key())
    )
    pulling = asyncio.ensure_future(anext(events))
    await eventually(lambda: orders.stats().dead == 2)
    pulling.cancel()
    await manager.stop_all()


async def without_shared_streams():
    orders.send("plain text")
    orders.send("second")
    stream = ReliqTrigger("orders").run()
    event = await asyncio.wait_for(anext(stream), 20)
    assert event.payload["body"] == "plain text"
    assert orders.stats().counters["acked"] == 1
    await asyncio.wait_for(anext(stream), 20)
    await eventually(lambda: orders.stats().counters["acked"] == 2)
    await stream.aclose()
    await eventually(lambda: orders.stats().ready == 1)


async def an_outage_ends_no_stream():
    claim, failed = Consumer.claim, []

    async def away(*arguments, **options):
        if len(failed) < 2:
            failed.append(1)
            raise reliq.RedisUnavailable("away")
        return await claim(*arguments, **options)

    Consumer.claim = away
    stream = ReliqTrigger("orders").run()
    event = await asyncio.wait_for(anext(stream), 20)
    assert (event.payload["body"], len(failed)) == ("second", 2)
    await stream.aclose()


async def an_outage_during_a_settlement_ends_no_stream():
    ack, failed = Consumer.ack, []
    acked = orders.stats().counters["acked"]

    async def away(*arguments):
        failed.append(1)
        if len(failed) == 1:
            raise reliq.RedisUnavailable("away")
        await ack(*arguments)
        if len(failed) == 2:
            raise reliq.OutcomeUnknown("no answer")

    Consumer.ack = away
    manager, trigger = SharedStreamManager(ack_timeout=60), ReliqTrigger("orders")
    key = trigger.shared_stream_key()
    events = trigger.filter_shared_stream(manager.subscribe(trigger_id=3, trigger=trigger, key=key))
    for _ in range(orders.stats().ready):
        await asyncio.wait_for(anext(events), 20)
        manager.confirm_persisted([manager.bind_pending_event(trigger_id=3, key=key)])
    orders.send("last")
    await asyncio.wait_for(anext(events), 20)  # which says that Airflow is done with those before
    await eventually(lambda: len(failed) > 2 and orders.stats().counters["acked"] > acked)
    assert orders.stats().processing == 1
    await manager.stop_all()


async def main():
    provider_is_found()
    await acked_when_stored()
    await rejected_is_dead()
    await without_shared_streams()
    await an_outage_ends_no_stream()
    await an_outage_during_a_settlement_ends_no_stream()


asyncio.run(main())
app.close()
print("airflow: all well")
sys.exit(0)
