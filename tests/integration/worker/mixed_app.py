"""The application of the tests with two versions of reliq; it runs under either of them.

Started as a program it is a producer. What was answered and what was handled goes to files, a number a line.
"""

import itertools
import os
import sys
import time

import reliq

SIZES = (200, 64 * 1024)
app = reliq.Reliq()


def note(*names: str) -> None:
    log = os.open(os.environ["MIXED_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, "".join(f"{name}\n" for name in names).encode())
    os.close(log)


def body_of(name: str, size: int) -> str:
    """A body that shows whether it has arrived whole."""
    return name + "." * (size - len(name))


@app.handler("q")
def handle(message: reliq.Message) -> None:
    name = message.body.decode().rstrip(".")
    assert len(message.body) in SIZES, f"{name} has {len(message.body)} bytes"
    note(name)


def produce(label: str) -> None:
    """Send until the end of the standard input; note what was answered."""
    os.set_blocking(0, False)
    for call in itertools.count():
        names = [f"{label}-{call}-{number}" for number in range(20)]
        app.queue("q").send_many([body_of(name, SIZES[0]) for name in names])
        large = f"{label}-{call}-large"
        app.queue("q").send(body_of(large, SIZES[1]))
        note(*names, large)
        if sys.stdin.buffer.read(1) == b"":
            return
        time.sleep(0.05)  # a load that does not take the cores from those that are replaced


if __name__ == "__main__":
    produce(sys.argv[1])
