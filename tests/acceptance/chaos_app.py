"""The application that the chaos test runs: its history goes to a file, a line an event, written before it is acked.

S = a handler starts, D = Redis has answered "done" to an ack. Times are of one clock for all processes.
"""

import os
import time

import reliq
from reliq.model.message import Message
from reliq.protocol.consumer import ConsumerSteps

app = reliq.Reliq()
history = os.open(os.environ["CHAOS_HISTORY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
settle = ConsumerSteps.settle


def note(event: str, identity: str) -> None:
    os.write(history, f"{event} {identity} {time.monotonic_ns()}\n".encode())


def settle_and_note(self, acks, moves=(), limit=0, also=()):
    codes, messages = yield from settle(self, acks, moves, limit, also)
    for element, code in zip(acks, codes[: len(acks)], strict=True):
        if code == "d":
            note("D", Message.decode("q", element).id)
    return codes, messages


ConsumerSteps.settle = settle_and_note  # type: ignore[method-assign]


@app.handler("q")
def work(message: reliq.Message) -> None:
    note("S", message.id)
    time.sleep(0.002)
