"""A receiver that notes how long ago each message was sent: python timed.py reliq|threads|blmove URL

It works until its standard input ends, then prints JSON: kind of message -> seconds.
"""

import json
import os
import sys
import threading
import time
from collections import defaultdict

import redis

import reliq
from reliq.transport.store import Store
from reliq.worker import Options, Worker

waits = defaultdict(list)


def note(body):
    kind, sent = body.split()
    waits[kind.decode()].append(time.monotonic() - float(sent))
    return kind


def blmove(url):
    client = redis.Redis.from_url(url)
    while True:
        element = client.blmove("bare", "bare:processing", 2, "RIGHT", "LEFT")
        if element is not None:
            note(element)
            client.lrem("bare:processing", -1, element)


def worker(url, threads):
    app = reliq.Reliq(url)

    @app.handler("bench")
    def handle(message):
        if note(message.body) == b"slow":
            time.sleep(1.0)

    Worker(Store(url), app.handlers, Options(threads=threads)).run()


def report():
    sys.stdin.read()
    print(json.dumps(waits), flush=True)
    os._exit(0)


if __name__ == "__main__":
    variant, url = sys.argv[1:]
    threading.Thread(target=report, daemon=True).start()
    if variant == "blmove":
        blmove(url)
    else:
        worker(url, 8 if variant == "threads" else 1)
