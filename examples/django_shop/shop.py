"""The tasks of the shop."""

import os
from pathlib import Path
from typing import Any

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task


@task()
def ship(order: int) -> None:
    """Ship an order; here, note its number."""
    with Path(os.environ["SHOP_LOG"]).open("a") as file:
        file.write(f"shipped {order}\n")


@task(takes_context=True)
def refuse(context: Any, order: int) -> None:
    """Fail at each attempt."""
    raise ValueError(f"attempt {context.attempt}: no such order: {order}")


@task(backend="outbox", queue_name="payments")
def charge(order: int, amount: int) -> dict[str, int]:
    """Charge for an order: a row of the same transaction as the order, so it is never forgotten."""
    if amount < 0:
        raise ValueError(f"order {order}: the amount is {amount}")
    return {"order": order, "charged": amount}
