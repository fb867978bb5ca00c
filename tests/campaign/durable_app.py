"""The application of the row of durable handlers: ten steps each, a sleep, a wait for a signal, and one in vain.

Each line of the log is one write at its end, so the lines of all processes are in the order in which they happened.
"""

import os
import time

import reliq

app = reliq.Reliq()
STEPS = 10
_log = os.open(os.environ["DURABLE_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(*words: object) -> None:
    os.write(_log, (" ".join(map(str, words)) + "\n").encode())


def work(identity: str, number: int) -> int:
    note("run", identity, number)
    time.sleep(0.002)
    return number * number


@app.handler("durable", retry=reliq.fixed(0, limit=1000))
def handle(message: reliq.Message) -> None:
    for number in range(STEPS):
        if number == STEPS // 3:
            message.sleep("short", seconds=0.05)
        if number == STEPS // 2:
            note("signal", message.id, message.wait("go"))
        if number == STEPS - 1:
            note("vain", message.id, message.wait("never", timeout=0.05, default="over"))
        assert message.step(f"step {number}", work, message.id, number) == number * number
        note("done", message.id, number)
    note("end", message.id)
