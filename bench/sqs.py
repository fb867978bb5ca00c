"""`reliq sqs` beside the emulators of SQS: the same client of botocore, in turns, and what the servers need for it.

    python -m bench.sqs [--rounds 3] [--messages 1000] [--only reliq,moto] [--drain 216000]

moto's server and ministack come by pip, fauxqs by npm, each into a folder of its own in .bench/sqs. They keep messages
in memory, except "fauxqs stored", which writes each change to SQLite; reliq keeps them in a Redis with `appendfsync
everysec`. A rate counts messages a second of CPU of all processes of a server (for reliq: the endpoint with its
monitor, and Redis); the clients are processes of their own.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reliq.embedded import EmbeddedRedis, free_port

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / ".bench" / "sqs"
BODY = "x" * 200
GROUPS = 100  #: of a FIFO queue
SHARES = {"moto": 0.2}  #: of the messages, for a server that would take very long; it gets slower with each message
BATCH = 10
WORKS = ("send", "send by ten", "receive and delete")
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Missing(Exception):
    """A contestant cannot run here; the text is the reason."""


# --- servers


@dataclass
class Server:
    """A server that runs: its port and its processes."""

    port: int
    pids: Sequence[int]

    def cpu(self) -> float:
        """Return the seconds of CPU that its processes have used, children included."""
        return sum(sum(map(int, _stat(pid)[11:13])) for pid in self._tree()) / _TICK

    def memory(self) -> float:
        """Return the MiB that its processes occupy."""
        return sum(int(_stat(pid)[21]) for pid in self._tree()) * _PAGE / 2**20

    def _tree(self) -> list[int]:
        parents = {int(one.name): one for one in Path("/proc").iterdir() if one.name.isdigit()}
        found = list(self.pids)
        for pid in found:
            for child in parents:
                with contextlib.suppress(OSError):
                    if int(_stat(child)[1]) == pid:
                        found.append(child)
        return found


def _stat(pid: int) -> list[str]:
    """Return the fields of a process from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@contextlib.contextmanager
def running(command: Sequence[str], port: int, **environment: str) -> Iterator[int]:
    """Run a server until the context ends; yields its pid when it answers."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env={**os.environ, **environment}, cwd=PLACE, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise Missing(log.read()[-300:].decode(errors="replace"))
                time.sleep(0.1)
            yield process.pid
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@contextlib.contextmanager
def reliq() -> Iterator[Server]:
    port = free_port()
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("", "api", "monitor"))
    with EmbeddedRedis() as redis:
        command = [
            sys.executable,
            "-m",
            "reliq",
            "sqs",
            "--no-auth",
            "--quiet",
            "--port",
            str(port),
            "--url",
            redis.url,
        ]
        with running(command, port, PYTHONPATH=paths) as pid:
            yield Server(port, (pid, redis.pid))


def _environment(name: str, *packages: str) -> Path:
    """Return the folder of programs of a virtual environment with these packages."""
    folder = PLACE / name
    if not (folder / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        done = subprocess.run(
            [str(folder / "bin" / "pip"), "install", "-q", *packages], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Missing(done.stderr.strip()[-200:])
        (folder / ".ready").touch()
    return folder / "bin"


@contextlib.contextmanager
def moto() -> Iterator[Server]:
    program, port = _environment("moto", "moto[sqs,server]") / "moto_server", free_port()
    with running([str(program), "-p", str(port)], port) as pid:
        yield Server(port, (pid,))


@contextlib.contextmanager
def ministack() -> Iterator[Server]:
    program, port = _environment("ministack", "ministack") / "ministack", free_port()
    with running([str(program)], port, GATEWAY_PORT=str(port), LOG_LEVEL="ERROR") as pid:
        yield Server(port, (pid,))


@contextlib.contextmanager
def fauxqs(stored: bool = False) -> Iterator[Server]:
    """fauxqs on the Node.js that it needs, which npm has too; `stored`: in SQLite, with every change."""
    folder, port = PLACE / "fauxqs-2", free_port()
    if shutil.which("npm") is None:
        raise Missing("there is no npm")
    packages = folder / "node_modules"
    if not (packages / "fauxqs").exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run([*install, "node@22", "fauxqs@2"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(done.stderr.strip()[-200:])
    command = [str(packages / "node" / "bin" / "node"), str(packages / "fauxqs" / "dist" / "cli.js")]
    with tempfile.TemporaryDirectory() as data:
        told = {"FAUXQS_DATA_DIR": data, "FAUXQS_PERSISTENCE": "true"} if stored else {}
        with running(command, port, FAUXQS_PORT=str(port), FAUXQS_LOGGER="false", **told) as pid:
            yield Server(port, (pid,))


Contestant = Callable[[], contextlib.AbstractContextManager[Server]]
CONTESTANTS: dict[str, Contestant] = {
    "reliq": reliq, "moto": moto, "ministack": ministack, "fauxqs": fauxqs,
    "fauxqs stored": partial(fauxqs, stored=True),
}  # fmt: skip


# --- clients


def client(port: int) -> object:
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        "sqs", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id="a",
        aws_secret_access_key="b", config=Config(retries={"total_max_attempts": 1}, read_timeout=120),
    )  # fmt: skip


def work(port: int, queue: str, kind: str, count: int, seed: str, groups: int) -> None:
    """Do a client's share; run in a process of its own, which says when it is ready, and how long it took."""
    sqs = client(port)
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]  # type: ignore[attr-defined]
    fifo = queue.endswith(".fifo")

    def message(at: int) -> dict[str, str]:
        more = {"MessageGroupId": f"g{at % groups}", "MessageDeduplicationId": f"{seed}-{at}"} if fifo else {}
        return {"MessageBody": BODY, **more}

    print("ready", flush=True)
    sys.stdin.readline()
    cpu, began = time.process_time(), time.monotonic()
    done = 0
    while done < count:
        if kind == "send":
            sqs.send_message(QueueUrl=url, **message(done))  # type: ignore[attr-defined]
            done += 1
        elif kind == "send by ten":
            entries = [{"Id": str(at), **message(done + at)} for at in range(BATCH)]
            answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)  # type: ignore[attr-defined]
            done += len(answer["Successful"])
        else:
            answer = sqs.receive_message(  # type: ignore[attr-defined]
                QueueUrl=url, MaxNumberOfMessages=BATCH, VisibilityTimeout=600
            )
            found = answer.get("Messages", [])
            if not found:
                break  # the other clients have had the rest
            entries = [{"Id": str(at), "ReceiptHandle": one["ReceiptHandle"]} for at, one in enumerate(found)]
            sqs.delete_message_batch(QueueUrl=url, Entries=entries)  # type: ignore[attr-defined]
            done += len(found)
    took = {"done": done, "seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}
    print(json.dumps(took), flush=True)


@dataclass
class Figures:
    """What one work has cost."""

    messages: int
    seconds: float
    server: float  #: seconds of CPU
    client: float  #: seconds of CPU
    memory: float  #: MiB of the server at the end

    @property
    def rate(self) -> float:
        """Messages a second of the server's CPU."""
        return self.messages / max(self.server, 1 / _TICK)


def measured(server: Server, queue: str, kind: str, clients: int, messages: int, groups: int = GROUPS) -> Figures:
    """Let clients do a work together; return what it has cost."""
    share = messages // clients
    command = [sys.executable, "-m", "bench.sqs", "--work", str(server.port), queue, kind]
    processes = [
        subprocess.Popen(
            [*command, str(share), f"{queue}-{kind[-3:]}-{at}-{time.time_ns()}", str(groups)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for at in range(clients)
    ]  # fmt: skip
    for one in processes:
        assert one.stdout is not None
        if one.stdout.readline() != "ready\n":
            raise Missing("a client did not start")
    before = server.cpu()
    for one in processes:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    told = [json.loads(one.communicate(timeout=1800)[0]) for one in processes]
    return Figures(
        sum(one["done"] for one in told), max(one["seconds"] for one in told), server.cpu() - before,
        sum(one["cpu"] for one in told), server.memory(),
    )  # fmt: skip


def make_queue(server: Server, name: str) -> None:
    more = {"Attributes": {"FifoQueue": "true"}} if name.endswith(".fifo") else {}
    client(server.port).create_queue(QueueName=name, **more)  # type: ignore[attr-defined]


# --- the table

Row = tuple[str, str, int, str]  #: contestant, kind of queue, clients, work


def play(names: Sequence[str], rounds: int, messages: int) -> dict[Row, list[Figures]]:
    """Let the contestants take turns."""
    found: dict[Row, list[Figures]] = {}
    for turn in range(rounds):
        for name in names:
            most = max(BATCH * 4, int(messages * SHARES.get(name, 1)))
            try:
                with CONTESTANTS[name]() as server:
                    for kind in ("standard", "FIFO"):
                        for clients in (1, 4):
                            queue = f"{kind}-{clients}" + (".fifo" if kind == "FIFO" else "")
                            make_queue(server, queue)
                            for work in WORKS:
                                count = most * {"send": 1, WORKS[1]: 5, WORKS[2]: 6}[work]
                                figures = measured(server, queue, work, clients, count)
                                found.setdefault((name, kind, clients, work), []).append(figures)
                print(f"round {turn + 1}: {name}", file=sys.stderr, flush=True)
            except Missing as error:
                print(f"{name} is left out: {error}", file=sys.stderr, flush=True)
    return found


def table(found: dict[Row, list[Figures]]) -> str:
    """Return the figures as Markdown, medians: messages a second of the servers' CPU, then what else was used."""
    names = [name for name in CONTESTANTS if any(row[0] == name for row in found)]
    lines = [f"| queue | clients | work | {' | '.join(names)} |", "|---" * (3 + len(names)) + "|"]
    for kind, clients, work in dict.fromkeys(row[1:] for row in found):
        rates = [_middle(found[name, kind, clients, work], lambda one: one.rate) for name in names]
        lines.append(f"| {kind} | {clients} | {work} | {' | '.join(f'{one:,.0f}' for one in rates)} |")
    for name in names:
        every = [figures for row, figures in found.items() if row[0] == name]
        memory = max(_middle(figures, lambda one: one.memory) for figures in every)
        used = [_middle(figures, lambda one: one.client / max(1, one.messages) * 1000) for figures in every]
        lines.append(f"{name}: {memory:,.0f} MiB, {min(used):.2f} to {max(used):.2f} CPU s of clients per 1,000")
    return "\n".join(lines)


def _middle(figures: list[Figures], of: Callable[[Figures], float]) -> float:
    return statistics.median(map(of, figures))


def drain(messages: int) -> str:
    """Fill a FIFO queue with 1,000 groups and drain it with four clients; return what its tenths have cost."""
    with reliq() as server:
        make_queue(server, "drain.fifo")
        measured(server, "drain.fifo", WORKS[1], 4, messages, groups=1000)
        tenths = [measured(server, "drain.fifo", WORKS[2], 4, messages // 10, groups=1000) for _ in range(10)]
    rates = ", ".join(f"{one.rate:,.0f} ({one.messages / one.seconds:,.0f})" for one in tenths)
    done, seconds = sum(one.messages for one in tenths), sum(one.seconds for one in tenths)
    return f"{done:,} messages in {seconds:.0f} s; in each tenth, per CPU second (and per second): {rates}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=1000, help="that are sent one by one; five times that by tens")
    parser.add_argument("--only", default=",".join(CONTESTANTS), help="contestants, by commas")
    parser.add_argument("--drain", type=int, default=0, metavar="N", help="drain a FIFO queue of N messages instead")
    parser.add_argument("--work", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        port, queue, kind, count, seed, groups = options.work
        work(int(port), queue, kind, int(count), seed, int(groups))
        return
    PLACE.mkdir(parents=True, exist_ok=True)
    if options.drain:
        print(drain(options.drain))
    else:
        print(table(play(options.only.split(","), options.rounds, options.messages)))


if __name__ == "__main__":
    main()
