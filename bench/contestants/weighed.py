"""A consumer that works when it is told to, so that Redis' counters can be read before and after.

    python weighed.py reliq|streams URL

Each line of standard input is answered with one line of JSON: `start` makes a consumer ready, `go MESSAGES` consumes
that many and settles all of them, `stop` ends the consumer.
"""

import json
import sys
import threading
import time
from pathlib import Path

import redis
from play import versions

BATCH = 100
_POLL = 0.0005


class Reliq:
    """The worker of reliq with the defaults of `reliq worker` and a handler that does nothing.

    The messages wait in another key until `go`, when the worker already waits for them.
    """

    def __init__(self, url):
        import reliq
        from reliq.model.keys import QueueKeys

        self._url, self._client, self._keys = url, redis.Redis.from_url(url), QueueKeys("bench")
        self._aside = "{bench}aside"
        self._app, self._left, self._done = reliq.Reliq(url), 0, threading.Event()

        @self._app.handler("bench")
        def handle(message):
            self._left -= 1
            if not self._left:
                self._done.set()

    def start(self):
        from reliq.transport.store import Store
        from reliq.worker import Options, Worker

        self._client.rename(self._keys.messages, self._aside)
        self._worker = Worker(Store(self._url), self._app.handlers, Options())
        self._thread = threading.Thread(target=self._worker.run)
        self._thread.start()
        while not self._client.info("clients")["blocked_clients"]:
            time.sleep(_POLL)

    def go(self, messages):
        self._left = messages
        self._done.clear()
        self._client.rename(self._aside, self._keys.messages)
        self._done.wait()
        while int(self._client.hget(self._keys.counters, "acked") or 0) < messages:
            time.sleep(_POLL)

    def stop(self):
        self._worker.stop()
        while self._thread.is_alive():
            for client in self._client.client_list():
                if "b" in client["flags"]:  # the worker waits for messages, up to a second
                    self._client.client_unblock(client["id"])
            self._thread.join(0.01)


class Streams:
    """A consumer group by hand: 100 entries a call, acked and deleted in the same trip as the next read."""

    def __init__(self, url):
        self._client = redis.Redis.from_url(url)

    def start(self):
        pass

    def go(self, messages):
        done = []
        while messages or done:
            pipeline = self._client.pipeline(transaction=False)
            if done:
                pipeline.xack("stream", "group", *done)
                pipeline.xdel("stream", *done)
            pipeline.xreadgroup("group", "me", {"stream": ">"}, count=BATCH)
            answer = pipeline.execute()[-1]
            done = []
            for _, entries in answer or ():
                for identity, fields in entries:
                    _ = fields[b"body"]
                    done.append(identity)
            messages -= len(done)

    def stop(self):
        pass


def peak_kib():
    """The largest memory of this process; ru_maxrss would begin with that of the parent."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def main(variant, url):
    consumer = {"reliq": Reliq, "streams": Streams}[variant](url)
    for line in sys.stdin:
        order, *messages = line.split()
        began, cpu = time.monotonic(), time.process_time()
        getattr(consumer, order)(*map(int, messages))
        answer = {
            "seconds": time.monotonic() - began,
            "cpu": time.process_time() - cpu,
            "peak_kib": peak_kib(),
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "about":
        print(json.dumps(versions("reliq-queue", "redis", "hiredis", "msgspec")))
    else:
        main(*sys.argv[1:3])
