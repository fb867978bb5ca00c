"""The application of the row of flows: each run notes its begin and its end."""

import os
import time

import reliq

app = reliq.Reliq()
_LOG = os.open(os.environ["DURABLE_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if "DURABLE_LOG" in os.environ else -1


def note(what: str, message: reliq.Message) -> None:
    os.write(_LOG, f"{what} {message.headers['flow']} {message.headers['flow-member']}\n".encode())


def handle(message: reliq.Message) -> None:
    note("begin", message)
    if message.body == b"dies":
        raise reliq.Dead("as it should")
    time.sleep(0.005)
    note("end", message)


for name in ("flow-a", "flow-b", "flow-c"):
    app.handler(name, retry=reliq.fixed(0, limit=1000))(handle)
