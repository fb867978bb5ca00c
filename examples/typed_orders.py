"""Typed handlers, and bodies that change while messages are under way.

export RELIQ_URL=redis://127.0.0.1:...     # as `reliq dev` printed it
python examples/typed_orders.py            # sends
cd examples && reliq worker typed_orders:app
reliq dead list orders --reason invalid    # what did not fit
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

import reliq

app = reliq.Reliq()


class Address(msgspec.Struct):
    city: str
    country: str


@dataclass
class Order:
    number: int
    address: Address
    due: datetime | None = None
    items: list[str] = field(default_factory=list)


@app.handler("orders", retry=reliq.exponential(first=10, factor=3, limit=5))
def ship(order: Order, message: reliq.Message) -> None:
    print(f"shipping {order.number} to {order.address.city}, sent at {message.enqueued_at}")


@app.upgrade("orders", version=2)
def address_is_an_object(old: dict[str, Any]) -> dict[str, Any]:
    """Until last week, an order had only a city."""
    return {"number": old["number"], "address": {"city": old["city"], "country": "de"}}


if __name__ == "__main__":
    orders = app.queue("orders")
    orders.send(Order(1, Address("Bonn", "de"), items=["a book"]))
    orders.send({"number": 2, "city": "Kiel"}, headers={"body-version": "1"})  # as an old producer sends it
    orders.send({"number": "three"})  # does not fit: dead at once, with reason invalid
