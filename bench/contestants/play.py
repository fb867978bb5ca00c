"""What all contestants share: they fill a queue, or consume it in one process and count the runs of their handler.

    python with_X.py fill URL MESSAGES [VARIANT]
    python with_X.py consume URL MESSAGES [VARIANT]

The last line printed is JSON. A run ends when no handler has run for a while, so that a second delivery would be
counted too. Only the standard library: this file runs in every peer's own virtual environment.
"""

import importlib.metadata
import json
import os
import sys
import threading
import time

BODY = "x" * 200
_PATIENCE = 60.0  #: seconds until the first run


class Count:
    """Called by the handler. The rate counts from the first run to the last, so that start-up is not included."""

    def __init__(self, expected, quiet=0.5):
        self.runs = 0
        self.first = self.last = 0.0
        self._expected = expected
        self._quiet = quiet
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self):
        self.last = now = time.monotonic()
        if not self.runs:
            self.first = now
        self.runs += 1

    def many(self, runs):
        """Count as that many calls."""
        self()
        self.runs += runs - 1

    def _watch(self):
        began = time.monotonic()
        while True:
            time.sleep(0.1)
            idle = time.monotonic() - (self.last or began)
            # Not all have come: some peers pause between two polls.
            if idle > (self._quiet if self.runs >= self._expected else _PATIENCE if not self.runs else 15.0):
                self.report()

    def report(self):
        """Print the result and end the process at once, without the shutdown of the peer's worker."""
        print(json.dumps({"runs": self.runs, "first": self.first, "last": self.last}), flush=True)
        os._exit(0)


def versions(*names):
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def play(fill, consume, packages, settings, crash_safe="yes"):
    role, url, messages, *variant = sys.argv[1:]
    if role == "about":
        print(json.dumps({"versions": versions(*packages), "settings": settings, "crash_safe": crash_safe}))
    elif role == "fill":
        fill(url, int(messages), *variant)
    else:
        consume(url, Count(int(messages)), *variant)
