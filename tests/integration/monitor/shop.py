"""An application with handlers that record their runs, for a test to compare with the metrics."""

import os
import signal
import time

import reliq

app = reliq.Reliq()


def note(queue: str, what: str, seconds: float) -> None:
    with open(os.environ["SHOP_HISTORY"], "a", encoding="utf-8") as history:  # noqa: PTH123
        history.write(f"{queue} {what} {seconds:.6f}\n")


@app.handler("orders", retry=reliq.fixed(0.2, limit=2))
def order(message: reliq.Message) -> None:
    started = time.monotonic()
    time.sleep(0.002)
    note("orders", message.body.decode(), time.monotonic() - started)
    if message.body == b"bad":
        raise ValueError("a bad order")


@app.handler("fragile", retry=reliq.fixed(0.2, limit=2))
def fragile(message: reliq.Message) -> None:
    if message.body == b"poison" or (message.body == b"killer" and not message.redelivered):
        os.kill(os.getpid(), signal.SIGKILL)
    note("fragile", "good", 0.0)
