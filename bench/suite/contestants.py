"""The contestants: scripts of bench/contestants, each run in its own process and virtual environment."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parent.parent
PEERS = BENCH.parent / ".bench"
SCRIPTS = BENCH / "contestants"


class Failed(Exception):
    """A contestant failed its task."""


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    script: str
    messages: int  #: how many a run takes: for one or two seconds
    environment: str = ""  #: of .bench; the suite's own without one, or where that of our own code is not set up
    variant: str = ""
    broker: str = "redis"
    kind: str = "peer"  #: peer, asyncio (a peer with async handlers), reliq, hand

    @property
    def _interpreter(self) -> str:
        if self.script.endswith(".mjs"):
            return "node"
        python = PEERS / self.environment / "bin" / "python"
        ours = self.kind in ("reliq", "hand")
        return str(python) if self.environment and (python.exists() or not ours) else sys.executable

    def start(
        self, role: str, url: str = "", messages: int = 0, stdin: int = subprocess.DEVNULL
    ) -> "subprocess.Popen[str]":
        command = [self._interpreter, str(SCRIPTS / self.script), role, url, str(messages)]
        environment = {
            **os.environ,
            "BENCH_NODE": str(PEERS / "node"),
            "BENCH_URL": url,
            "PYTHONPATH": str(BENCH.parent),
        }
        return subprocess.Popen(
            [*command, self.variant] if self.variant else command,
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def finish(self, process: "subprocess.Popen[str]", timeout: float = 180.0) -> dict[str, Any]:
        """Wait for its end; what it printed last."""
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failed(f"{self.name}: gave no result in {timeout:.0f} s") from None
        lines = output.strip().splitlines()
        if process.returncode:
            said = errors.strip().splitlines() or lines
            raise Failed(f"{self.name}: {said[-1] if said else 'failed'}")
        answer: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return answer

    def about(self) -> dict[str, Any]:
        """Versions and settings; raises Failed or OSError where it is not installed."""
        return self.finish(self.start("about"), timeout=60)

    def fill(self, url: str, messages: int) -> None:
        self.finish(self.start("fill", url, messages))

    def rate(self, url: str, messages: int) -> float:
        """Messages/s of one process that consumes what has been filled in."""
        answer = self.finish(self.start("consume", url, messages))
        return rate_of([answer], messages, self.name)


def rate_of(answers: Sequence[dict[str, Any]], messages: int, name: str) -> float:
    """From the first run to the last one; every message must have run, and no more."""
    runs = sum(answer["runs"] for answer in answers)
    if runs != messages:
        raise Failed(f"{name}: {messages} messages, but {runs} runs")
    began = min(answer["first"] for answer in answers if answer["runs"])
    return float((runs - 1) / max(1e-9, max(answer["last"] for answer in answers) - began))


RAW = Contestant("raw limit", "with_redis.py", 250_000, "reliq", "raw", kind="hand")
RELIQ = Contestant("reliq", "with_reliq.py", 250_000, "reliq", "def", kind="reliq")
RELIQ_PLAIN = Contestant("reliq without hiredis", "with_reliq.py", 100_000, variant="def", kind="reliq")
RELIQ_ASYNC = Contestant("reliq, async handler", "with_reliq.py", 80_000, "reliq", "async", kind="reliq")
RELIQ_SLOW = Contestant("reliq, 16 threads", "with_reliq.py", 4_800, "reliq", "slow", kind="reliq")
STREAMS = Contestant("Streams group by hand", "with_redis.py", 80_000, "python", "streams", kind="hand")
BULLMQ = Contestant("BullMQ", "with_bullmq.mjs", 15_000)

FIELD = (
    RAW,
    RELIQ,
    RELIQ_PLAIN,
    RELIQ_ASYNC,
    STREAMS,
    Contestant("LMOVE/LREM pipelined", "with_redis.py", 50_000, "python", "pipelined", kind="hand"),
    Contestant("LMOVE/LREM one at a time", "with_redis.py", 6_000, "python", "lmove", kind="hand"),
    BULLMQ,
    Contestant("RabbitMQ + pika", "with_rabbitmq.py", 15_000, "python", broker="rabbitmq"),
    Contestant("Dramatiq", "with_dramatiq.py", 4_000, "python"),
    Contestant("Huey", "with_huey.py", 4_000, "python"),
    Contestant("taskiq-redis", "with_taskiq.py", 4_000, "taskiq", kind="asyncio"),
    Contestant("SAQ", "with_saq.py", 3_000, "python", kind="asyncio"),
    Contestant("arq", "with_arq.py", 2_500, "python", kind="asyncio"),
    Contestant("streaQ", "with_streaq.py", 2_000, "streaq", kind="asyncio"),
    Contestant("docket", "with_docket.py", 800, "docket", kind="asyncio"),
    Contestant("Celery", "with_celery.py", 1_200, "celery"),
    Contestant("RQ", "with_rq.py", 300, "python"),
)
