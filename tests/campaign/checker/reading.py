"""Reads what a campaign has left behind: histories, the faults among them, and the final dump of Redis."""

import bisect
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec


class Claim(NamedTuple):
    """A message arrived at a consumer. `since`: before it asked for it; `at`: when it had the answer."""

    since: float
    at: float
    process: str


class Run(NamedTuple):
    """A handler ran; `end` is None if it never returned. `then`: ok | retried | rejected | ''."""

    start: float
    end: float | None
    then: str
    process: str


class Settle(NamedTuple):
    """A message was settled. `code`: d = done, a = it was settled before, l = the lease was lost, '' = no answer."""

    asked: float
    at: float | None
    to: str
    code: str
    process: str
    delay: float

    @property
    def final(self) -> bool:
        """Whether the message was to leave the queue, or to become a dead letter."""
        return self.to in ("ack", "dead", "gone", "done")


class Fault(NamedTuple):
    """`process`: what it hit, * = Redis itself. `rewound`: since then Redis may have lost what it had answered."""

    kind: str
    process: str
    start: float
    end: float
    rewound: float | None


class Story:
    """All that is known of one message."""

    __slots__ = (
        "asked", "cancel_asked", "cancelled", "claims", "delay", "do", "identity", "key", "name", "runs", "sent",
        "settles", "turn",
    )  # fmt: skip

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.name = ""
        self.do = "work"
        self.key = ""
        self.turn = 0  #: its place among the messages of its producer
        self.delay = 0.0
        self.asked = 0.0
        self.sent: float | None = None  #: when the producer was told that it is enqueued
        self.cancelled: float | None = None  #: when a producer was told that it is deleted
        self.cancel_asked = False  #: also if the answer was lost: a repeated call finds the message gone
        self.claims: list[Claim] = []
        self.runs: list[Run] = []
        self.settles: list[Settle] = []


class Element(NamedTuple):
    """A message in the dump."""

    identity: str
    key: str
    place: str  #: ready | processing | delayed | dead | waiting | prepared
    reason: str


class Evidence:
    """The histories and the dump of one run."""

    def __init__(self, folder: Path) -> None:
        self.promised: dict[str, Any] = json.loads((folder / "run.json").read_text())
        self.stories: dict[str, Story] = {}
        self.faults: list[Fault] = []
        self.failed_names: set[str] = set()
        self.unknown_ids: set[str] = set()
        self.unknown_names: set[str] = set()  #: of sends without an answer
        self.misnamed: list[str] = []
        self.deduplicated: dict[str, set[str]] = defaultdict(set)
        self.errors: dict[str, int] = defaultdict(int)
        self.texts: dict[str, str] = {}
        for path in sorted(folder.glob("*.history")):
            self._read(path)
        self.faults.sort(key=lambda fault: fault.start)
        self._by_process: dict[str, list[Fault]] = defaultdict(list)
        for fault in self.faults:
            self._by_process[fault.process].append(fault)
        self._longest = max((fault.end - fault.start for fault in self.faults), default=0.0)
        self.dump = json.loads((folder / "dump.json").read_text())
        self.elements = list(self._elements())

    # --- histories ---

    def _read(self, path: Path) -> None:
        process, open_calls = path.stem, {}
        decode = msgspec.json.Decoder().decode
        with path.open("rb") as lines:
            for line in lines:
                event = decode(line)
                function, state = event["f"], event["s"]
                if function == "claim":
                    for identity in event["ids"]:
                        self._story(identity).claims.append(Claim(event["since"], event["t"], process))
                elif function == "fault":
                    self.faults.append(
                        Fault(event["kind"], event["process"], event["from"], event["to"], event.get("rewound"))
                    )
                elif state == "invoke":
                    open_calls[event["call"]] = event
                else:
                    began = open_calls.pop(event["call"], None)
                    if began is not None:
                        self._ended(process, began, event)
        for began in open_calls.values():
            self._ended(process, began, None)

    def _story(self, identity: str) -> Story:
        story = self.stories.get(identity)
        if story is None:
            story = self.stories[identity] = Story(identity)
        return story

    def _ended(self, process: str, began: dict[str, Any], ended: dict[str, Any] | None) -> None:
        match began["f"]:
            case "run":
                story = self._story(began["id"])
                then = "" if ended is None else ended.get("then", "ok")
                story.runs.append(Run(began["t"], None if ended is None else ended["t"], then, process))
                if story.name not in ("", began["name"]):
                    self.misnamed.append(began["id"])
                story.name = began["name"]
            case "settle":
                self._settled(process, began, ended)
            case "send":
                self._sent(process, began, ended)
            case "cancel":
                story = self._story(began["id"])
                story.cancel_asked = True
                if ended is not None and ended.get("answer") == "cancelled":
                    story.cancelled = ended["t"]

    def _settled(self, process: str, began: dict[str, Any], ended: dict[str, Any] | None) -> None:
        codes, at = ("", None) if ended is None else (ended["codes"], ended["t"])
        delays = began.get("delays") or {}
        for place, (identity, to) in enumerate(zip(began["ids"], began["to"], strict=True)):
            code = codes[place : place + 1]
            settle = Settle(began["t"], at, to, code, process, delays.get(identity, 0.0))
            self._story(identity).settles.append(settle)

    def _sent(self, process: str, began: dict[str, Any], ended: dict[str, Any] | None) -> None:
        state = "unknown" if ended is None else ended["s"]
        ids = [] if ended is None else ended.get("ids") or []
        if state == "fail" and ended is not None:
            self.errors[ended["error"]] += 1
            self.texts.setdefault(ended["error"], ended.get("text", ""))
            self.failed_names |= {message["name"] for message in began["messages"] if "dedup" not in message}
            return
        if state == "unknown":
            self.errors["unknown"] += 1
            self.unknown_ids |= set(ids)
            self.unknown_names |= {message["name"] for message in began["messages"]}
        for message, identity in zip(began["messages"], ids, strict=False):
            story = self._story(identity)
            if story.name not in ("", message["name"]):
                self.misnamed.append(identity)
            story.name, story.do, story.key = message["name"], message.get("do", "work"), message.get("key", "")
            story.turn = int(message["name"].rpartition(":")[2])
            if "dedup" in message and state == "ok":
                self.deduplicated[f"{process} {message['dedup']}"].add(identity)
            if story.sent is None:
                story.delay, story.asked = message.get("delay", 0.0), story.asked or began["t"]
                if state == "ok" and ended is not None:
                    story.sent = ended["t"]

    # --- faults ---

    def faults_of(self, process: str, start: float, end: float) -> Iterator[Fault]:
        """Return the faults that hit this process, or Redis, between two moments."""
        owner = process.partition(".")[0]
        for name in {process, owner, "*"}:
            known = self._by_process.get(name, ())
            last = bisect.bisect_right(known, end, key=lambda fault: fault.start)
            first = bisect.bisect_left(known, start - self._longest, key=lambda fault: fault.start)
            yield from (fault for fault in known[first:last] if fault.end >= start)

    def rewound(self, at: float, until: float = float("inf")) -> bool:
        """Whether Redis may have lost what it answered at this moment, by a fault before `until`."""
        return any(
            fault.rewound is not None and fault.rewound <= at <= fault.end and fault.start <= until
            for fault in self.faults
        )

    # --- the dump ---

    def _elements(self) -> Iterator[Element]:
        for key, value in self.dump.items():
            part = key.partition("}:")[2]
            place = {
                "messages": "ready", "high": "ready", "low": "ready", "next_round": "ready", "delayed": "delayed",
                "dead": "dead", "waiting": "waiting",
            }.get(part) or ("processing" if part.startswith("processing:") else "")  # fmt: skip
            for member in value if place else ():
                raw = bytes.fromhex(member)
                if raw:
                    yield _element(raw[32:] if place == "waiting" else raw, place)

    def hash(self, name: str) -> dict[str, str]:
        """Return a hash of the queue from the dump; of all its partitions, with the sums of numbers."""
        found: dict[str, str] = {}
        for key, value in self.dump.items():
            if key.partition("}:")[2] == name and isinstance(value, dict):
                for field, one in value.items():
                    what, text = (bytes.fromhex(part).decode("latin-1") for part in (field, one))
                    is_sum = text.lstrip("-").isdigit() and what in found
                    found[what] = str(int(found[what]) + int(text)) if is_sum else text
        return found


def _element(raw: bytes, place: str) -> Element:
    """Decode an element as docs/reference/wire-format.md describes it."""
    try:
        fields = msgspec.msgpack.decode(raw)
        extra = (fields[9] if len(fields) > 9 else None) or {}
        return Element(fields[1], extra.get("key", ""), place, extra.get("reason", ""))
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError, TypeError):
        return Element(raw.hex(), "", place, "undecodable")
