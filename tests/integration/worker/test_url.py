"""`reliq worker --url`: the application uses the Redis of the worker, whichever it was made with."""

import pytest

from tests.support.workers import eventually, process

SYNC = """
from reliq import Reliq
app = Reliq("redis://127.0.0.1:1/0")

@app.handler("orders")
def ship(message):
    app.queue("shipped").send(app.url)
"""
ASYNC = """
from reliq.aio import Reliq
app = Reliq("redis://127.0.0.1:1/0")

@app.handler("orders")
async def ship(message):
    await app.queue("shipped").send(app.url)
"""


@pytest.mark.parametrize("text", [SYNC, ASYNC], ids=["threads", "asyncio"])
def test_handlers_send_to_the_redis_of_their_worker(app, tmp_path, text):
    (tmp_path / "shop.py").write_text(text)
    app.queue("orders").send("a parcel")
    with process("worker", "shop:app", "--url", app.url, folder=tmp_path):
        shipped = app.queue("shipped")
        eventually(lambda: shipped.stats().ready == 1)
    with shipped.consumer() as consumer:
        assert [message.body.decode() for message in consumer.claim(1)] == [app.url]
