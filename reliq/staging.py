"""Staging: write any number of messages where nobody sees them, then make all of them visible, or none.

A job is written in parts, each by one writer (a Spark task attempt, an HTTP request). Whoever leads the job commits it
with the list of the parts that count: one record, written in one step. That decides. Then the parts are rolled
forward into the queue in short steps that anybody may take or repeat: the leader, or a monitor when the leader died.

    open ── commit ──> committed ── every part rolled forward, the others removed ──> done
      └─── abort ───> aborted ──── every part removed ──> forgotten
"""

import functools
import itertools
import re
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from reliq import ops
from reliq.errors import InvalidName, JobClosed, QueueFull
from reliq.keys import QueueKeys
from reliq.ops import Steps

Entry = bytes | tuple[int, bytes]  #: an element, or the ms of its delay and the element

CHUNK_MESSAGES = 1000  #: what one step makes visible; Redis serves nobody else meanwhile
CHUNK_BYTES = 512 * 1024
TIME_LIMIT = 24 * 3600.0  #: seconds after which a job that nobody writes to, commits or aborts is aborted
REMEMBERED = 3600.0  #: seconds a decided job is known, so that a late writer or a repeated commit learns of it
_CALL_BYTES = 4 * 1024 * 1024
_ROLLS_PER_TRIP = 4
_PARTS_PER_TRIP = 200

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,128}")


def new_token() -> str:
    """What makes a run, or a part of it, unlike every other."""
    return secrets.token_hex(8)


def check_job(name: str) -> str:
    """The name itself; raises InvalidName."""
    if _NAME.fullmatch(name) is None:
        raise InvalidName(f"job name {name!r}: use 1 to 128 of A-Z a-z 0-9 . _ @ -")
    return name


@dataclass(frozen=True, slots=True)
class Job:
    """A job, and which run of it this is: a job that is begun anew leaves what its earlier run staged behind."""

    keys: QueueKeys
    name: str = field(default_factory=new_token)
    run: str = field(default_factory=new_token)
    time_limit: float = TIME_LIMIT
    remembered: float = REMEMBERED

    def __post_init__(self) -> None:
        check_job(self.name)


class Part(msgspec.Struct, array_like=True, frozen=True):
    """What one writer has staged, as the manifest of the commit has it."""

    name: str
    chunks: int
    messages: int


_encode = msgspec.msgpack.Encoder().encode
_decode_manifest = msgspec.msgpack.Decoder(list[Part]).decode


class PartWriter:
    """Stages one part of a job. For one writer; the name is unlike that of every other attempt."""

    def __init__(self, job: Job, name: str) -> None:
        self._job = job
        self.part = Part(f"{name}-{new_token()}", 0, 0)

    def add(self, entries: Sequence[Entry]) -> Steps[None]:
        """Stage them behind those before; raises JobClosed, and QueueFull when Redis is full."""
        for chunks, messages in _calls(entries):
            job, part = self._job, self.part
            request: list[ops.Op[str] | ops.Op[int]] = [
                ops.stage(job.keys, job.name, job.run, job.time_limit, part.name, part.chunks, chunks)
            ]
            if not part.chunks:
                request.insert(0, ops.announce(job.keys.queue))
            *_, answer = yield request
            if answer != "ok":
                raise _closed(job, answer)
            self.part = Part(part.name, part.chunks + len(chunks), part.messages + messages)


def _calls(entries: Sequence[Entry]) -> Iterator[tuple[list[bytes], int]]:
    """The chunks of one call after the other, each with its number of messages."""
    chunks: list[bytes] = []
    size = messages = 0
    for group in _groups(entries):
        chunks.append(pack(group))
        size += len(chunks[-1])
        messages += len(group)
        if size >= _CALL_BYTES:
            yield chunks, messages
            chunks, size, messages = [], 0, 0
    if chunks:
        yield chunks, messages


def _groups(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    for start in range(0, len(entries), CHUNK_MESSAGES):
        group = entries[start : start + CHUNK_MESSAGES]
        if sum(map(_size, group)) <= CHUNK_BYTES:
            yield group
        else:
            yield from _small_groups(group)


def _small_groups(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Groups of at most CHUNK_BYTES, or of one entry that is larger."""
    start = size = 0
    for place, entry in enumerate(entries):
        size += _size(entry)
        if size > CHUNK_BYTES and place > start:
            yield entries[start:place]
            start, size = place, _size(entry)
    yield entries[start:]


@functools.lru_cache(maxsize=4096)
def _head(length: int) -> bytes:
    return struct.pack(">BI", 0xDB, length)


def pack(entries: Sequence[Entry]) -> bytes:
    """A chunk: a MessagePack array of strings, with a delay among them of pairs. By hand: Redis reads no `bin`."""
    pieces = [struct.pack(">BI", 0xDD, len(entries))]
    if all(isinstance(entry, bytes) for entry in entries):
        for entry in entries:
            pieces += (_head(len(entry)), entry)  # type: ignore[arg-type]
        return b"".join(pieces)
    for entry in entries:
        delay, element = (0, entry) if isinstance(entry, bytes) else entry
        pieces += (struct.pack(">BBQ", 0x92, 0xCF, delay), _head(len(element)), element)
    return b"".join(pieces)


def _size(entry: Entry) -> int:
    return len(entry) if isinstance(entry, bytes) else len(entry[1])


Progress = Callable[[int], None]


def unwatched(moved: int) -> None:
    """The progress that nobody looks at."""


def open_job(job: Job) -> Steps[bool]:
    """Begin a job. False: an earlier run has committed it, there is nothing left to write."""
    _, state = yield [ops.announce(job.keys.queue), ops.stage_open(job.keys, job.name, job.run, job.time_limit)]
    return bool(state == "open")


def commit(
    job: Job, parts: Sequence[Part], stream: str = "", epoch: int = 0
) -> Steps[Literal["committed", "already", "repeated"]]:
    """Decide that these parts become visible, and no other of the job. Then `roll_forward`.

    With a stream, an epoch that it has committed before is not committed again: "repeated", and the job is aborted.
    Raises JobClosed, QueueFull (max_length): nothing becomes visible.
    """
    parts = [part for part in parts if part.chunks]
    yield from _check(job, parts)
    manifest, messages = _encode(parts), sum(part.messages for part in parts)
    answer = yield ops.commit(job.keys, job.name, job.run, manifest, messages, job.remembered, stream, epoch)
    if answer == "closed":
        raise _closed(job, answer)
    if answer == "repeated":
        yield from abort(job)
        return "repeated"
    return "already" if answer == "already" else "committed"


def _check(job: Job, parts: Sequence[Part]) -> Steps[None]:
    keys = job.keys
    state, most, ready, delayed = yield [
        ops.command("HGET", keys.job(job.name), "state"),
        ops.command("HGET", keys.config, "max_length"),
        ops.command("LLEN", keys.messages),
        ops.command("ZCARD", keys.delayed),
    ]
    if state in (b"committed", b"done"):
        return  # a commit whose answer was lost
    lengths = yield from _lengths(job, parts)
    if lengths != [part.chunks for part in parts]:
        raise _closed(job, "torn")
    messages = sum(part.messages for part in parts)
    if most is not None and ready + delayed + messages > int(most):
        raise QueueFull(
            f"queue {keys.queue!r} holds {ready + delayed} of at most {int(most)} messages; "
            f"none of the {messages} of job {job.name} was enqueued"
        )


def _lengths(job: Job, parts: Sequence[Part]) -> Steps[list[int]]:
    lengths: list[int] = []
    for page in _pages(parts):
        lengths += yield [ops.command("LLEN", job.keys.staged(job.name, part.name)) for part in page]
    return lengths


def outcome(keys: QueueKeys, job: str) -> Steps[int | None]:
    """How many messages a job has committed; None where it is not committed, or that is forgotten."""
    state, messages = yield ops.command("HMGET", keys.job(job), "state", "messages")
    return int(messages) if state in (b"committed", b"done") else None


def roll_forward(job: Job, at_most: int | None = None, progress: Progress = unwatched) -> Steps[int]:
    """Move what is committed into the queue, in up to `at_most` steps, and with the last of it end the job.

    How many messages moved. Nothing, where the job is not committed or is over.
    """
    manifest = yield ops.command("HGET", job.keys.job(job.name), "manifest")
    if manifest is None:
        return 0
    parts = _decode_manifest(manifest)
    lengths = yield from _lengths(job, parts)
    rolls = (
        ops.commit_roll(job.keys, job.name, part.name)
        for part, length in zip(parts, lengths, strict=True)
        for _ in range(length)
    )
    moved: int = 0
    while trip := list(itertools.islice(rolls, _ROLLS_PER_TRIP)):
        moved += sum(count for count, _ in (yield trip))
        progress(moved)
        if at_most is not None and (at_most := at_most - len(trip)) <= 0:
            return moved
    yield from _clear(job)
    return moved


def abort(job: Job, overdue: bool = False) -> Steps[bool]:
    """Remove everything the job has staged; False when that is not this run's to do: it is committed, or taken over.

    `overdue`: only if its time limit has passed.
    """
    aborted = bool((yield ops.stage_abort(job.keys, job.name, job.run, overdue)))
    if aborted:
        yield from _clear(job)
    return aborted


def abort_others(job: Job, prefix: str) -> Steps[None]:
    """Abort the open jobs of this prefix but this one: what dead runs of the same leader have left."""
    names = yield ops.command("ZRANGE", job.keys.jobs, 0, _PARTS_PER_TRIP - 1)
    for name in (one.decode() for one in names):
        if name.startswith(prefix) and name != job.name:
            run = yield ops.command("HGET", job.keys.job(name), "run")
            yield from abort(Job(job.keys, name, (run or b"").decode()))


def _clear(job: Job) -> Steps[None]:
    left = 1
    while left > 0:
        some = yield ops.command("SRANDMEMBER", job.keys.parts(job.name), _PARTS_PER_TRIP)
        names = [name.decode() for name in some]
        left = yield ops.stage_clear(job.keys, job.name, job.run, job.remembered, names)


def finish_due(keys: QueueKeys, due: Iterable[bytes], at_most: int | None = None) -> Steps[int]:
    """Do what the leaders of these jobs did not: roll forward, remove. For a monitor; how many messages moved."""
    moved = 0
    for name in due:
        state, run = yield ops.command("HMGET", keys.job(name.decode()), "state", "run")
        job = Job(keys, name.decode(), (run or b"").decode())
        match state:
            case b"committed":
                moved += yield from roll_forward(job, at_most)
            case b"open":
                yield from abort(job, overdue=True)
            case _:
                yield from _clear(job)
    return moved


def due_jobs(keys: QueueKeys, now: int) -> ops.Op[list[bytes]]:
    """The jobs that are decided and not over, or open and beyond their time limit."""
    return ops.Op(("ZRANGEBYSCORE", keys.jobs, "-inf", now, "LIMIT", 0, 10))


def _pages(parts: Sequence[Part]) -> Iterator[Sequence[Part]]:
    return (parts[start : start + _PARTS_PER_TRIP] for start in range(0, len(parts), _PARTS_PER_TRIP))


def _closed(job: Job, answer: str) -> JobClosed:
    queue = job.keys.queue
    if answer == "torn":
        return JobClosed(f"job {job.name} of queue {queue!r}: Redis has lost what was staged; nothing becomes visible")
    return JobClosed(
        f"job {job.name} of queue {queue!r} was aborted, ran out of its time limit of {job.time_limit:g} s, "
        "or was begun anew by another run; nothing of this run becomes visible"
    )
