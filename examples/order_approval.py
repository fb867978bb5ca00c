"""An order that waits for a person: charged once, parked until somebody approves it, and asked about a week later.

Without a server, and the week passes at once: `reliq.testing` has a clock of its own.

    python examples/order_approval.py
"""

from dataclasses import dataclass

import reliq
from reliq.testing import Bench

app = reliq.Reliq()
charged: list[int] = []
told: list[str] = []


@dataclass
class Receipt:
    order: int
    euros: float


def charge(order: dict) -> Receipt:
    charged.append(order["order"])
    return Receipt(order["order"], order["euros"])


def tell(text: str) -> None:
    told.append(text)


@app.handler("orders")
def fulfil(message: reliq.Message) -> None:
    order = message.json()
    receipt = message.step("charge", charge, order, retry=reliq.exponential(first=1, limit=5))
    answer = message.wait("approval", timeout="2d", default={"by": "nobody"})
    if answer["by"] == "nobody":
        message.step("refund", tell, f"order {receipt.order}: {receipt.euros:.2f} euros are on their way back")
        return
    message.step("ship", tell, f"order {receipt.order} is shipped, approved by {answer['by']}")
    message.sleep("a week", days=7)
    message.step("ask", tell, f"how was order {receipt.order}?")


def main() -> None:
    with Bench(app) as bench:
        orders = app.queue("orders")
        first, _ = orders.send_many([{"order": 1, "euros": 9.5}, {"order": 2, "euros": 20.0}])
        bench.work_off()
        print(f"{orders.stats().parked} orders wait for approval")
        app.signal(first, "approval", {"by": "ann"})
        bench.work_off()
        bench.travel("2d")  # nobody has approved the second one
        bench.work_off()
        bench.travel("7d")
        bench.work_off()
        print(*told, sep="\n")
        print(f"charged {charged}, acked {orders.stats().counters['acked']}")


if __name__ == "__main__":
    main()
