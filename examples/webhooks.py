"""Webhooks to a server that answers 507 in bursts: retries with a back-off, and a picture of it over time.

    python examples/webhooks.py [--svg FILE]

A local server accepts requests for two seconds, then refuses them with 507 for two seconds, and so on. 300 webhooks are
sent to it. A refused one waits longer after each failure, with jitter, so the server is not flooded when it is back;
none is lost.
"""

import argparse
import asyncio
import os
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import reliq
from reliq.embedded import EmbeddedRedis

from running import command, wait_for  # isort: skip

WEBHOOKS = 300
GOOD, BAD = 2.0, 2.0  #: seconds
STEP = 0.25  #: seconds of a row in the picture

app = reliq.Reliq()


@app.handler("webhooks", retry=reliq.exponential(first="0.3s", factor=2, jitter=0.3, cap="3s", limit=12))
async def deliver(message: reliq.Message) -> None:
    await asyncio.to_thread(post, os.environ["TARGET"], message.body)


def post(address: str, body: bytes) -> None:
    with urllib.request.urlopen(urllib.request.Request(address, body), timeout=5):
        """An answer of 400 and more is an error, which urllib raises: the message is retried."""


class Target(BaseHTTPRequestHandler):
    """The customer's server."""

    started = time.monotonic()
    answers: ClassVar[Counter[tuple[int, int]]] = Counter()  #: by (row of the picture, status)
    delivered: ClassVar[Counter[bytes]] = Counter()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        at = time.monotonic() - self.started
        status = 200 if at % (GOOD + BAD) < GOOD else 507
        self.answers[int(at / STEP), status] += 1
        self.delivered[body] += status == 200
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main(svg: Path | None) -> None:
    target = ThreadingHTTPServer(("127.0.0.1", 0), Target)
    threading.Thread(target=target.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{target.server_address[1]}/"
    with EmbeddedRedis() as redis, reliq.Reliq(redis.url) as shop:
        queue = shop.queue("webhooks")
        with command(
            "worker", "webhooks:app", "--concurrency", "20", "--quiet", url=redis.url, TARGET=address
        ) as worker:
            wait_for(lambda: queue.stats().consumers > 0 or worker.poll() is not None)
            Target.started = time.monotonic()
            for number in range(WEBHOOKS):
                queue.send({"event": number})
                time.sleep(6 / WEBHOOKS)
            wait_for(lambda: queue.stats().counters.get("acked") == WEBHOOKS)
        stats = queue.stats()
    target.shutdown()
    target.server_close()

    rows = [(Target.answers[row, 200], Target.answers[row, 507]) for row in range(max(Target.answers)[0] + 1)]
    print("seconds   accepted #, refused with 507 .")
    for row, (good, bad) in enumerate(rows):
        print(f"{row * STEP:7.2f}   {'#' * good}{'.' * bad}")
    if svg:
        svg.write_text(picture(rows), encoding="utf-8")
    refused = sum(bad for _, bad in rows)
    print(f"{refused} requests were refused, at most {max(bad for _, bad in rows)} in {STEP} s")
    print(f"delivered {sum(1 for n in Target.delivered.values() if n)} of {WEBHOOKS}, dead {stats.dead}")


def picture(rows: list[tuple[int, int]]) -> str:
    """Return a bar for each row: what was accepted, and above it what was refused."""
    width, height, scale = 640, 200, 150 / max(good + bad for good, bad in rows)
    bar = (width - 40) / len(rows)
    parts = [
        f'<text x="30" y="14">webhooks answered in each {STEP} s: accepted (blue), refused with 507 (orange)</text>'
    ]
    for row, (good, bad) in enumerate(rows):
        for count, below, colour in ((good, 0, "#3b6fb6"), (bad, good, "#e08a2e")):
            x, y = 30 + row * bar, height - 20 - (below + count) * scale
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar - 1:.1f}" height="{count * scale:.1f}" fill="{colour}"/>'
            )
        if row * STEP == int(row * STEP):
            parts.append(f'<text x="{30 + row * bar:.1f}" y="{height - 6}">{int(row * STEP)} s</text>')
    style = 'font-family="sans-serif" font-size="11" fill="#333"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {style}>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--svg", type=Path)
    main(options.parse_args().svg)
