"""Handlers for the tests of order and of the cycle; their history goes to a file, a line an event."""

import os
import time

import reliq

app = reliq.Reliq()
history = os.open(os.environ["ORDER_HISTORY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.handler("ordered", retry=reliq.fixed(0.01, limit=100))
def work(message: reliq.Message) -> None:
    os.write(history, f"S {message.key} {message.body.decode()} {message.id} {message.failures}\n".encode())
    time.sleep(0.001)
    if hash((message.id, message.failures)) % 10 == 0:
        raise ValueError("one of ten fails")
    os.write(history, f"E {message.key} {message.body.decode()} {message.id} {message.failures}\n".encode())


@app.handler("accounts")
def visit(message: reliq.Message) -> reliq.Again:
    time.sleep(0.001)
    return reliq.Again(delay=0.01 if message.key.endswith("0") else 0)
