"""An application with a check-back, as a module for `reliq worker`; and a producer that is killed before it decides.

The work itself is a file per message: what the check-back looks for.
"""

import os
import sys
import time
from pathlib import Path

import reliq

app = reliq.Reliq()
done = Path(os.environ["DONE"])


@app.handler("q")
def handle(message: reliq.Message) -> None:
    (done / f"{message.id}.handled").touch()


@app.check("q")
def check(message: reliq.Message) -> bool:
    return (done / message.id).exists()


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        handle_of = app.queue("q").prepare({"n": number}, timeout="1s", checks=1000)
        if number % 2:
            (done / handle_of.id).touch()
        print(handle_of.id, flush=True)
    time.sleep(600)
