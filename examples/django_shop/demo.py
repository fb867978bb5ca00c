"""Django's tasks on reliq: `python examples/django_shop/demo.py`. Starts a Redis and a worker of its own.

Needs the extras: `pip install '.[django,sql,embedded]'` in reliq's source folder.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from reliq.embedded import EmbeddedRedis

HERE = Path(__file__).resolve().parent


def orders() -> list[Any]:
    """Place orders in transactions, one of which is rolled back; return the results of their charges."""
    from django.db import transaction
    from shop import charge, ship

    charges = []
    for number in range(1, 4):
        with transaction.atomic():
            charges.append(charge.enqueue(number, 100 * number))
            ship.enqueue(number)
            if number == 2:
                transaction.set_rollback(True)
    return [charges[0], charges[2]]


def is_done(charge: Any) -> bool:
    charge.refresh()
    return bool(charge.is_finished)


def main() -> None:
    with EmbeddedRedis() as server, tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        paths = [str(HERE), *sys.path]
        os.environ |= {
            "RELIQ_URL": server.url, "DJANGO_SETTINGS_MODULE": "settings", "SHOP_LOG": str(log),
            "SHOP_DB": str(Path(folder) / "db"), "SHOP_CACHE": str(Path(folder) / "cache"),
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        }  # fmt: skip
        sys.path.insert(0, str(HERE))
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        charges = orders()
        command = [sys.executable, "-m", "reliq", "worker", "reliq.contrib.django.worker:app", "--quiet"]
        worker = subprocess.Popen(command)
        try:
            until = time.monotonic() + 30
            while time.monotonic() < until and not (log.read_text().count("\n") == 2 and all(map(is_done, charges))):
                time.sleep(0.05)
        finally:
            worker.terminate()
            worker.wait(timeout=30)
        for charge in charges:
            print(charge.return_value)
        print(log.read_text(), end="")
        print("order 2 was rolled back")


if __name__ == "__main__":
    main()
