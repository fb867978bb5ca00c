"""What calls cost `reliq sqs` and its Redis: microseconds of CPU a message, by a client that writes bytes to a socket.

    python -m bench.sqs_costs                                   # beside the floor and an emulator, in turns
    python -m bench.sqs_costs --only reliq --beside ../other    # beside another checkout

The servers run at once and take turns every ten calls. Each figure is that of the cheapest run of many: on a busy
machine the others show what else was running.
`bare` is the floor for any endpoint in Python: uvloop and httptools, no check, one LPUSH a message (bench/sqs_bare.py).
"""

import argparse
import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.sqs import BODY, CONTESTANTS, GROUPS, PLACE, ROOT, Contestant, Server, running
from reliq.embedded import EmbeddedRedis, free_port

_RUNS, _CALLS = 30, 10  #: of each work, in each round
_SEND = "standard: send"  #: what the bare server can do
Work = tuple[int, Callable[[], None]]  #: the messages of one call, and the call
Costs = dict[str, list[float]]  #: by work: microseconds of each process, for reliq the endpoint and Redis


class Client:
    """A client on one connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._answers = self._socket.makefile("rb")
        self._port = port

    def __call__(self, action: str, **parameters: Any) -> Any:
        body = json.dumps(parameters).encode()
        head = (
            f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nX-Amz-Target: AmazonSQS.{action}\r\n"
            "Authorization: AWS4-HMAC-SHA256 Credential=a/20261123/us-east-1/sqs/aws4_request, SignedHeaders=host, "
            f"Signature=a\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        status, length = self._answers.readline(), 0
        while (line := self._answers.readline().lower()) != b"\r\n":
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        answer = self._answers.read(length)
        if b" 200 " not in status:
            raise RuntimeError(f"{action}: {status!r} {answer!r}")
        return json.loads(answer or b"{}")


def cpu(pid: int) -> float:
    """Return the microseconds of CPU that the threads of a process have used."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1000


@contextlib.contextmanager
def endpoint(tree: Path | None) -> Iterator[Server]:
    """Run the endpoint of a checkout, without a monitor, or the bare server, with a Redis."""
    port = free_port()
    with EmbeddedRedis() as redis:
        if tree is None:
            command, paths = [sys.executable, "-m", "bench.sqs_bare", str(port), str(redis.port)], str(ROOT)
        else:
            options = ["--no-auth", "--quiet", "--no-monitor", "--port", str(port), "--url", redis.url]
            command = [sys.executable, "-m", "reliq", "sqs", *options]
            paths = os.pathsep.join(str(tree / folder) for folder in ("", "api", "monitor"))
        with running(command, port, PYTHONPATH=paths) as pid:
            yield Server(port, (pid, redis.pid))


def works(call: Client) -> dict[str, Work]:
    """Return what is measured, in this order."""
    standard = call("CreateQueue", QueueName="s")["QueueUrl"]
    fifo = call("CreateQueue", QueueName="f.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    look: Work = (1, lambda: call("GetQueueUrl", QueueName="s"))
    return {"GetQueueUrl": look, **_of_queue(call, "standard", standard), **_of_queue(call, "FIFO", fifo)}


def _of_queue(call: Client, kind: str, url: str) -> dict[str, Work]:
    def message() -> dict[str, str]:
        now = time.time_ns()
        fifo = {"MessageGroupId": f"g{now % GROUPS}", "MessageDeduplicationId": str(now)} if kind == "FIFO" else {}
        return {"MessageBody": BODY, **fifo}

    def send_ten() -> None:
        call("SendMessageBatch", QueueUrl=url, Entries=[{"Id": str(at), **message()} for at in range(10)])

    def take(most: int) -> None:
        found = call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=most, VisibilityTimeout=600)["Messages"]
        entries = [{"Id": str(at), "ReceiptHandle": one["ReceiptHandle"]} for at, one in enumerate(found)]
        call("DeleteMessageBatch", QueueUrl=url, Entries=entries)

    return {
        f"{kind}: send ten": (10, send_ten),
        f"{kind}: send": (1, lambda: call("SendMessage", QueueUrl=url, **message())),
        f"{kind}: receive and delete ten": (10, lambda: take(10)),
        f"{kind}: receive and delete": (1, lambda: take(1)),
    }


def measure(running: dict[str, Server], costs: dict[str, Costs]) -> None:
    """Note what each work costs each server if it is less than what is known; they take turns at every work."""
    every = {name: works(Client(server.port)) for name, server in running.items() if name != "bare"}
    if "bare" in running:
        every["bare"] = {_SEND: _of_queue(Client(running["bare"].port), "standard", "s")[_SEND]}
    for work in next(iter(every.values())):
        calls = _CALLS // 2 if "delete ten" in work else _CALLS
        for name in [*running] * _RUNS:
            if work not in every[name]:
                continue
            (messages, do), pids = every[name][work], running[name].pids
            before = [cpu(pid) for pid in pids]
            for _ in range(calls):
                do()
            spent = [(cpu(pid) - was) / calls / messages for pid, was in zip(pids, before, strict=True)]
            costs[name][work] = min(costs[name].get(work, spent), spent, key=sum)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="reliq,bare,fauxqs stored", help="servers, by commas")
    parser.add_argument("--beside", type=Path, help="another checkout")
    options = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    servers: dict[str, Contestant] = {**CONTESTANTS, "reliq": partial(endpoint, ROOT), "bare": partial(endpoint, None)}
    names = options.only.split(",")
    if options.beside:
        names.append("beside")
        servers["beside"] = partial(endpoint, options.beside.resolve())
    found: dict[str, Costs] = {name: {} for name in names}
    for _ in range(options.rounds):
        with contextlib.ExitStack() as stack:
            measure({name: stack.enter_context(servers[name]()) for name in names}, found)
    print(f"| us of CPU a message | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|", sep="\n")
    for work in found[names[0]]:
        cells = (" + ".join(f"{one:,.0f}" for one in costs.get(work, [])) for costs in found.values())
        print(f"| {work} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
