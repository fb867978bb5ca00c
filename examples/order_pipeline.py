"""Orders from HTTP through topics to workers; a bug, its dead letters, the repair and the redrive.

    python examples/order_pipeline.py

A shop posts orders to the HTTP service. Stock and billing subscribe to them, each with its own queue. Billing cannot
handle orders without a country, which end in its dead letters and delay nobody. It is repaired and its letters are
redriven.
"""

import json
import os
import urllib.request
from typing import Any

import reliq
from reliq.embedded import EmbeddedRedis

from running import command, http_service, wait_for  # isort: skip

ORDERS = 200

app = reliq.Reliq()


@app.handler("stock@orders")
def reserve(message: reliq.Message) -> None:
    assert message.json()["item"]


@app.handler("billing@orders", retry=reliq.fixed("0.1s", limit=2))
def write_invoice(message: reliq.Message) -> None:
    order = message.json()
    country = order.get("country", "none") if "BILLING_REPAIRED" in os.environ else order["country"]
    assert country


def post(address: str, path: str, body: Any) -> Any:
    request = urllib.request.Request(
        address + path, json.dumps(body).encode(), {"content-type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def main() -> None:
    with EmbeddedRedis() as redis, reliq.Reliq(redis.url) as shop, http_service(redis.url) as address:
        shop.subscribe("stock@orders", "order.created.*")
        shop.subscribe("billing@orders", "order.#")
        stock, billing = shop.queue("stock@orders"), shop.queue("billing@orders")

        with command("worker", "order_pipeline:app", "--quiet", url=redis.url):
            for number in range(ORDERS):
                order = {"order": number, "item": "book"} | ({"country": "fr"} if number % 50 else {})
                reached = post(address, "/v1/topics/order.created.eu/messages", {"body": order})["queues"]
            print(f"{ORDERS} orders over HTTP; each reached {', '.join(sorted(reached))}")
            wait_for(lambda: stock.stats().counters.get("acked") == ORDERS)
            wait_for(lambda: billing.stats().counters.get("acked", 0) + billing.stats().dead == ORDERS)
        print(f"stock has reserved {stock.stats().counters['acked']}; billing has {billing.stats().dead} dead letters:")
        for letter in billing.dead.list(limit=2):
            print(
                f"  {letter.reason} after {letter.failures} failures, {letter.errors[-1].error_class}: {letter.json()}"
            )

        with command("worker", "order_pipeline:app", "--quiet", url=redis.url, BILLING_REPAIRED="1"):
            redriven = post(address, "/v1/queues/billing@orders/dead/redrive", {"error_class": "KeyError"})
            print(f"billing is repaired, and {redriven['redriven']} letters are redriven over HTTP")
            wait_for(lambda: billing.stats().counters.get("acked") == ORDERS)
        print(f"billed {billing.stats().counters['acked']} of {ORDERS}, dead {billing.stats().dead}")


if __name__ == "__main__":
    main()
