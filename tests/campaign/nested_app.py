"""The application of the row of flows within flows: a run notes its begin, with the results before it, and its end."""

import json
import os
import time

import reliq
from tests.campaign.nested import QUEUES, send

app = reliq.Reliq()
_LOG = os.open(os.environ["DURABLE_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if "DURABLE_LOG" in os.environ else -1


def note(**words: object) -> None:
    os.write(_LOG, (json.dumps(words) + "\n").encode())


def handle(message: reliq.Message) -> str:
    plan = message.json()
    note(what="begin", name=plan["name"], results=message.results())
    if plan["opens"]:
        with app.flow(parent=message) as flow:
            send(flow, plan["opens"])
    time.sleep(0.005)
    note(what="end", name=plan["name"])
    if plan["dies"]:
        raise reliq.Dead("as it should")
    return str(plan["name"])


for name in QUEUES:
    app.handler(name, retry=reliq.fixed(0, limit=1000), result="1h")(handle)
