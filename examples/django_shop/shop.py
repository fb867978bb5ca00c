"""The tasks of the shop."""

import os
from pathlib import Path

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task


@task()
def ship(order: int) -> None:
    """Ship an order; here, note its number."""
    with Path(os.environ["SHOP_LOG"]).open("a") as file:
        file.write(f"shipped {order}\n")


@task()
def refuse(order: int) -> None:
    raise ValueError(f"no such order: {order}")
