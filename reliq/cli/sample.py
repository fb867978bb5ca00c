"""The sample application of `reliq dev --sample`: orders that are packed and announced; some fail, a few for good."""

import itertools
import random
import threading
import time

import reliq

app = reliq.Reliq()
orders = app.queue("sample-orders")

_EVERY = 0.5  #: seconds between two orders


@app.handler("sample-orders", retry=reliq.exponential(first=2, factor=2, limit=4))
def pack(message: reliq.Message) -> None:
    """Pack an order, and announce it."""
    order = message.json()
    time.sleep(random.uniform(0.05, 0.3))
    if order["number"] % 25 == 0:
        raise reliq.Dead(f"order {order['number']} has no address")
    if random.random() < 0.1:
        raise ConnectionError("the carrier does not answer")
    app.publish("sample.order.packed", order)


@app.handler("sample-mails")
def mail(message: reliq.Message) -> None:
    """Tell the customer."""
    time.sleep(0.02)


def send_orders(done: threading.Event) -> None:
    """Send an order every half second until `done`."""
    app.subscribe("sample-mails", "sample.order.*")
    for number in itertools.count(1):
        orders.send({"number": number, "customer": f"customer-{number % 7}"}, key=f"customer-{number % 7}")
        if done.wait(_EVERY):
            return
