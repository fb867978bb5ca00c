"""The application of the row of output: each run of a handler emits all numbers, one after another."""

import time

import reliq

app = reliq.Reliq()
CHUNKS = 20


@app.handler("output", retry=reliq.fixed(0, limit=1000))
def handle(message: reliq.Message) -> None:
    for number in range(CHUNKS):
        message.emit(number)
        time.sleep(0.02)
