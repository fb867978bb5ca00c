"""The faces that run handlers: a worker in this process, whose handler does what the story says."""

import math
import threading
from collections.abc import Mapping
from typing import Any

import redis

import reliq
from reliq.model.backoff import fixed
from reliq.transport.store import Store
from reliq.worker import Options, Worker
from tests.combine.seen import is_idle
from tests.combine.senders import QUEUE
from tests.combine.story import CHARGES, FAILS, LASTS, Story
from tests.combine.takers import SIGNAL, Opened, open_flow
from tests.reference import model
from tests.support.workers import ROOT, end, eventually, started

LATER = 60.0
RETRIES = 1
_COMES_BACK = ("again", "retry", "max_failures")  #: at once, into the line of its key


class Nobody:
    """No consumer by hand."""

    settles_later, name = False, "w"

    def take(self) -> list[str]:
        return []

    def settle(self, identity: str, outcome: str) -> None:
        raise AssertionError(f"{identity} is not to be settled by hand: {outcome}")

    def learn(self) -> bool:
        return True

    def charge(self, identity: str, actual: int) -> None:
        raise AssertionError(f"{identity} is not held by hand")

    def open_flow(self, identity: str, last: str) -> Opened:
        raise AssertionError(f"{identity} is not held by hand")

    vanish = leave = lambda self: None


class WorkerStory(Story):
    """A story in which a worker takes the messages: it runs until nothing is left that may start."""

    def handle(self, kind: str) -> "WorkerStory":
        """Be the handler of the queue."""
        self._kind = kind
        self._runs: list[tuple[str, str]] = []
        self._flows: dict[str, list[str]] = {}  #: that runs of the first message have opened, with their messages
        self._lock = threading.Lock()
        self._found_free = False

        self._to.system.slack = math.inf  # others may have been claimed before a run is charged

        def begin(message: reliq.Message) -> str:
            with self._lock:
                outcome = self._outcome_of(message)
                self._runs.append((message.id, outcome))
            return outcome

        def perform(message: reliq.Message) -> Any:
            outcome = begin(message)
            self._deed(message)
            self._rest(message)
            return ended(outcome)

        async def perform_async(message: reliq.Message) -> Any:
            outcome = begin(message)
            if (charged := self._deed(message)) is not None:
                await charged
            if (rested := self._rest(message)) is not None:
                await rested
            return ended(outcome)

        options: Any = {"retry": fixed(0, limit=RETRIES), "result": "1h"}
        self._to.app.handler(QUEUE, **options)(perform_async if kind == "asyncio" else perform)
        return self

    def _deed(self, message: reliq.Message) -> Any:
        """Do what a run of the first message does; return what is to be awaited."""
        if message.id != self._first:
            return None
        answer = do(self._to.app, message, self.row["deed"])
        if isinstance(answer, tuple):
            self._flows[answer[0]] = answer[1]
            return None
        return answer

    def _rest(self, message: reliq.Message) -> Any:
        """Let the first message sleep or wait, if it is to; return what is to be awaited."""
        return rest(message, self.row["outcome"]) if message.id == self._first else None

    def _outcome_of(self, message: reliq.Message) -> str:
        """Return the outcome of a run: only the first run of the first message has that of the row."""
        is_first = message.id == self._first
        outcome = outcome_of(message, is_first, self.row["outcome"], self._settled_first)
        self._settled_first |= is_first
        return outcome

    def _take(self) -> bool:
        if self._queue.paused or self._to.system.now < self._queue.breaker_until:
            return False
        self._runs.clear()
        self._work()
        self._die_late([])
        for identity, outcome in self._runs:
            self._note_run(identity, outcome)
        self._die_late([])
        self._step(f"work: {self._runs}")
        if self.row["moment"] == "held" and not self._acted:
            self._act()
        return bool(self._runs)

    def _note_stood_in_line(self, queues: Mapping[str, Any]) -> None:
        """With several at once, all may be claimed before one fails: then that one waits for no other."""
        super()._note_stood_in_line(queues)
        counted = queues[QUEUE].counters["ordered"] if QUEUE in queues else 0
        if self._kind != "inline" and counted == self._queue.counters["ordered"] - 1 and not self._found_free:
            self._found_free = self.row["outcome"] in _COMES_BACK
            self._queue.counters["ordered"] -= self._found_free

    def _note_handed_back(self, queues: Mapping[str, Any]) -> None:
        """A worker hands back what it has claimed ahead, for a limit, or if a run takes long on a busy machine."""
        if QUEUE in queues:
            counters = self._queue.counters
            more = max(0, queues[QUEUE].counters["released"] - counters["released"])
            counters.update({"claimed": more, "released": more})

    def _work(self) -> None:
        store = Store(self._to.app.url)
        worker = Worker(store, self._to.app.handlers, Options(threads=2 if self._kind == "threads" else 1))
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        try:
            # What waits then waits for a delayed message, or for a monitor.
            eventually(lambda: is_idle(self._client))
        finally:
            end(worker, thread, self._to.app.url)
            store.close()

    def _note_run(self, identity: str, outcome: str) -> None:
        message = self._queue.messages.get(identity)
        if message is not None and message.place == model.DELAYED:  # its key had no token, and has one now
            self._queue.promote()
        self._note_claim(identity, self._taker.name)
        if identity == self._first and self.row["deed"] in CHARGES:
            self._queue.charge(identity, CHARGES[self.row["deed"]])
        for flow, ids in self._flows.items() if identity == self._first else ():
            self._note_opened(flow, ids)
        if outcome == "max_failures" and self._queue.messages[identity].failures < RETRIES:
            outcome = "retry"
        self._note_end(identity, "ack" if outcome == "result" else outcome)


class ProcessStory(WorkerStory):
    """A story in which `reliq worker --processes 2` takes the messages."""

    def handle(self, kind: str) -> "ProcessStory":
        """Let processes of `process_app` handle the queue."""
        self._kind, self._runs, self._flows, self._found_free = kind, [], {}, False
        self._to.system.slack = math.inf
        self._port = self._client.connection_pool.connection_kwargs["port"]
        self._notes: Any = redis.Redis(port=self._port, db=1, decode_responses=True)
        return self

    def _work(self) -> None:
        if is_idle(self._client):
            return
        story = {"STORY_PORT": str(self._port), "STORY_FIRST": self._first, "STORY_OUTCOME": self.row["outcome"]}
        story["STORY_DEED"] = self.row["deed"]
        command = ("worker", "run", "tests.combine.process_app:app", "--processes", "2", "--no-monitor", "--quiet")
        with started(*command, folder=ROOT, RELIQ_URL=self._to.app.url, **story) as parent:
            try:
                eventually(lambda: is_idle(self._client), timeout=60)
            finally:
                parent.terminate()
                parent.wait(timeout=30)
        self._runs += [tuple(line.split(" ", 1)) for line in self._notes.lrange("ran", 0, -1)]
        self._flows |= {flow: ids.split() for flow, ids in self._notes.hgetall("opened").items()}
        self._notes.delete("ran", "opened")


def do(app: reliq.Reliq, message: reliq.Message, deed: str) -> Any:
    """Do what a run does; return the flow that it has opened, or what is to be awaited."""
    if deed in CHARGES:
        return message.charge(CHARGES[deed])
    return open_flow(app, message, LASTS[deed]) if deed in LASTS else None


def rest(message: reliq.Message, outcome: str) -> Any:
    """Sleep or wait, in the first run; return what is to be awaited."""
    if outcome == "sleep":
        return message.sleep("nap", LATER)
    return message.wait(SIGNAL) if outcome == "wait" else None


def outcome_of(message: reliq.Message, is_first: bool, wanted: str, ran_before: bool) -> str:
    """Return the outcome of a run: only the first run of the first message has that of the row."""
    if message.body == FAILS.encode():
        return "rejected"
    has_it = is_first and (not ran_before or wanted == "max_failures")
    return wanted if has_it and wanted != "expired" else "ack"


def ended(outcome: str) -> Any:
    """End a run with this outcome."""
    match outcome:
        case "result":
            return {"done": True}
        case "again":
            return reliq.Again()
        case "again later":
            return reliq.Again(LATER)
        case "retry":
            raise reliq.Retry("not now", delay=0)
        case "retry later":
            raise reliq.Retry("not now", delay=LATER)
        case "max_failures":
            raise ValueError("it always fails")
        case "rejected":
            raise reliq.Dead("it is wrong")
        case _:
            return None
