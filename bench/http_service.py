"""The HTTP service in one process: single enqueues, batches, lease and settle, acks beside a thousand waiting polls.

    python bench/http_service.py [--seconds 4] [--json]

The single enqueue is given as a share of the rate of a bare FastAPI route with one LPUSH through the same client;
the two take turns, so that what else the machine does hits both. The client is asyncio on raw sockets, in this process.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import uvicorn
import uvloop
from fastapi import FastAPI, Request

from reliq import ops
from reliq.embedded import EmbeddedRedis, free_port
from reliq.transport.aiostore import AioStore

ROOT = Path(__file__).resolve().parents[1]
CONNECTIONS = 32
BODY = b'{"body":{"order":1,"customer":"c-1","lines":[1,2,3]}}'
POLLS = 1000


# --- the bare route --------------------------------------------------------------------------------------------------


def bare(url: str, port: int) -> None:
    @asynccontextmanager
    async def lifespan(app):
        app.state.store = AioStore(url)
        yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/push")
    async def push(request: Request):
        body = await request.body()
        length = await request.app.state.store.run(ops.one(ops.command("LPUSH", "bare", body, repeatable=False)))
        return {"length": length}

    uvicorn.run(app, port=port, loop="uvloop", http="httptools", ws="none", access_log=False, log_level="warning")


# --- the client ------------------------------------------------------------------------------------------------------


class Connection:
    """One kept-alive connection; one request at a time."""

    async def open(self, port: int) -> "Connection":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        return self

    async def post(self, path: str, body: bytes, kind: str = "application/json") -> bytes:
        self.send(path, body, kind)
        return await self.answer()

    def send(self, path: str, body: bytes, kind: str = "application/json") -> None:
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)

    async def answer(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head[9:10] == b"2", head
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        return await self.reader.readexactly(length)


async def rate(port: int, path: str, body: bytes, seconds: float) -> float:
    """Return the requests per second over all connections."""
    connections = [await Connection().open(port) for _ in range(CONNECTIONS)]
    until = time.perf_counter() + seconds
    counts = []

    async def go(connection: Connection) -> None:
        count = 0
        while time.perf_counter() < until:
            await connection.post(path, body)
            count += 1
        counts.append(count)

    started = time.perf_counter()
    await asyncio.gather(*(go(connection) for connection in connections))
    return sum(counts) / (time.perf_counter() - started)


async def single(service: int, bare: int, seconds: float) -> dict:
    rounds = 4
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(await rate(bare, "/push", BODY, seconds / rounds))
        ours.append(await rate(service, "/v1/queues/single/messages", BODY, seconds / rounds))
    share = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
    return {
        "enqueue_per_second": round(statistics.median(ours)),
        "bare_lpush_per_second": round(statistics.median(theirs)),
        "share_of_bare": round(share, 3),
    }


async def batch(port: int, messages: int = 100_000) -> dict:
    line = BODY + b"\n"
    rates = []
    for _ in range(3):
        connection = await Connection().open(port)
        started = time.perf_counter()
        answer = await connection.post("/v1/queues/batch/messages/batch", line * messages, "application/x-ndjson")
        rates.append(messages / (time.perf_counter() - started))
        assert json.loads(answer)["enqueued"] == messages
    return {"ndjson_messages_per_second": round(statistics.median(rates))}


async def lease_and_settle(port: int, seconds: float) -> dict:
    """From what `batch` left in its queue."""

    class Message(msgspec.Struct):
        id: str

    class Lease(msgspec.Struct):
        lease: str | None
        messages: list[Message]

    decode = msgspec.json.Decoder(Lease).decode
    until = time.perf_counter() + seconds
    done = 0

    async def go() -> None:
        nonlocal done
        connection = await Connection().open(port)
        while time.perf_counter() < until:
            given = decode(await connection.post("/v1/queues/batch/leases", b'{"limit":100}'))
            assert given.lease, "the queue is empty: fewer seconds"
            ids = msgspec.json.encode({"ack": [message.id for message in given.messages]})
            await connection.post(f"/v1/queues/batch/leases/{given.lease}/settle", ids)
            done += len(given.messages)

    started = time.perf_counter()
    await asyncio.gather(*(go() for _ in range(4)))
    return {"lease_and_settle_messages_per_second": round(done / (time.perf_counter() - started))}


def resident(pid: int) -> float:
    """Return the resident memory of a process, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


async def polls(port: int, pid: int) -> dict:
    before = resident(pid)
    waiting = [await Connection().open(port) for _ in range(POLLS)]
    for connection in waiting:
        connection.send("/v1/queues/idle/leases", b'{"wait":30}')
    await asyncio.sleep(1)
    connection = await Connection().open(port)
    took = []
    for _ in range(500):
        await connection.post("/v1/queues/acked/messages", BODY)
        given = json.loads(await connection.post("/v1/queues/acked/leases", b"{}"))
        ids = json.dumps({"ack": [message["id"] for message in given["messages"]]}).encode()
        started = time.perf_counter()
        await connection.post(f"/v1/queues/acked/leases/{given['lease']}/settle", ids)
        took.append((time.perf_counter() - started) * 1000)
    took.sort()
    return {
        "waiting_polls": POLLS,
        "megabytes_before_the_polls": round(before, 1),
        "megabytes_with_them": round(resident(pid), 1),
        "ack_p50_ms": round(took[250], 2),
        "ack_p99_ms": round(took[495], 2),
    }


# --- putting it together ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def process(*command: str):
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("", "api", "monitor"))
    child = subprocess.Popen([sys.executable, *command], env={**os.environ, "PYTHONPATH": paths})
    try:
        yield child
    finally:
        child.terminate()
        child.wait(timeout=30)


async def ready(port: int) -> None:
    for _ in range(400):
        try:
            await Connection().open(port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            return
    raise SystemExit(f"nothing listens on port {port}")


async def measure(service: int, pid: int, bare: int, seconds: float) -> dict:
    await ready(service)
    await ready(bare)
    found = await single(service, bare, seconds)
    found |= await batch(service)
    found |= await lease_and_settle(service, seconds / 2)
    return found | await polls(service, pid)


def figures(seconds: float) -> dict:
    """Measure a service and a bare route, each in a process of its own; `seconds` of single enqueues for each."""
    ports = free_port(), free_port()
    with (
        EmbeddedRedis() as server,
        process("-m", "reliq", "api", "--no-auth", "--url", server.url, "--port", str(ports[0]), "--quiet") as child,
        process(__file__, "--bare", server.url, str(ports[1])),
    ):
        return uvloop.run(measure(ports[0], child.pid, ports[1], seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of single enqueues, for each side")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--bare", nargs=2, metavar=("URL", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        bare(options.bare[0], int(options.bare[1]))
        return
    found = figures(options.seconds)
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:40} {value:>12,}")


if __name__ == "__main__":
    main()
