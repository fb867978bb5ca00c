"""Staging: write any number of messages invisibly, then make all of them visible, or none.

A job is written in parts, each by one writer (a Spark task attempt, an HTTP request) for one queue. The leader of the
job commits it with the list of the parts that count: one record, written in one step. That decides, for all queues.
Then the parts are rolled forward into their queues in short steps that any client may take or repeat: the leader, or a
monitor after the leader died.

    open ── commit ──> committed ── every part rolled forward, the others removed ──> done
      └─── abort ───> aborted ──── every part removed ──> forgotten
"""

import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from reliq import ops
from reliq.contract import values
from reliq.errors import JobClosed, OutcomeUnknown, QueueFull
from reliq.features.staging import ops as own
from reliq.features.staging.calls import bodies_last, calls
from reliq.features.staging.model import Summary, encode
from reliq.features.staging.ops import Staged
from reliq.features.staging.room import check_room
from reliq.model.element import group_in
from reliq.model.keys import JobKeys, QueueKeys, check_job, logical_name
from reliq.ops import JobState, Steps, Transaction
from reliq.ops.chunks import Chunk, bodies_of, deduplicated, elements_of, references_of
from reliq.protocol.dedup import first_elsewhere
from reliq.protocol.progress import Progress, unwatched
from reliq.protocol.resizing import given_up
from reliq.runtime.pieces import pieces

ORPHANED = 7 * 86_400.0  #: seconds beyond the time limit after which a part unknown to its job expires
REMEMBERED = 3600.0  #: seconds a decided job is remembered for late writers and repeated commits
_PARTS_PER_TRIP = 200
_JOBS_PER_TRIP = 10
_NOTED = 100_000  #: messages that become visible before the job's record notes it
_CHUNKS_PER_TRIP = 8  #: that are deleted with their bodies: Redis copies each of them once


def new_token() -> str:
    """Return a new random token that identifies a run or a part of it."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its run: a job that is started again does not include what an earlier run staged."""

    home: JobKeys  #: the keys of its record: those of its queue, or those for jobs of several queues
    name: str = field(default_factory=new_token)
    run: str = field(default_factory=new_token)
    time_limit: float = values.JOB_TIME_LIMIT
    remembered: float = REMEMBERED

    def __post_init__(self) -> None:
        check_job(self.name)


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a job in a sequence whose numbers are committed once each, in rising order."""

    of: str  #: the stream or the application
    number: int  #: the epoch of a stream, or the version of an application's transaction
    versions: bool = False

    def __str__(self) -> str:
        return f"version {self.number} of {self.of}" if self.versions else f"epoch {self.number} of stream {self.of}"


class Part(msgspec.Struct, array_like=True, frozen=True):
    """The messages that one writer has staged for one queue, as listed in the manifest of the commit."""

    queue: str
    name: str
    chunks: int
    messages: int
    bytes: int = 0

    @property
    def staged(self) -> Staged:
        return Staged(QueueKeys(self.queue), self.name)


_encode_manifest = msgspec.msgpack.Encoder().encode
_decode_manifest = msgspec.msgpack.Decoder(list[Part]).decode


class PartWriter:
    """Stages one part of a job. For a single writer; the part's name is unique to this attempt."""

    def __init__(self, job: Job, queue: str, name: str, announced: bool = False) -> None:
        """`announced`: the caller has made the queue known, for all parts that it writes."""
        self._job = job
        self._announced = announced
        self.part = Part(queue, f"{name}-{new_token()}", 0, 0)

    def add(self, chunks: Iterable[Chunk]) -> Steps[None]:
        """Stage further chunks of the part; raises JobClosed, and QueueFull if Redis is full."""
        apart = self.part.staged.apart(self._job.home)
        for some in calls(chunks if apart else bodies_last(chunks)):
            if not self.part.chunks and not self._announced:
                yield ops.announce(self.part.queue)
            staged, bodies = some, []
            if not apart:
                staged, bodies = [one for one in some if not one.has_bodies], [one for one in some if one.has_bodies]
            answer = yield from self._stage(staged, bodies)
            if answer != "ok":
                raise (yield from _why_closed(self._job, answer))
            part, messages = self.part, sum(chunk.messages for chunk in staged)
            size = part.bytes + sum(chunk.size for chunk in some)
            self.part = Part(part.queue, part.name, part.chunks + len(staged), part.messages + messages, size)

    def _stage(self, chunks: Sequence[Chunk], bodies: Sequence[Chunk]) -> Steps[str]:
        """Append chunks, and store bodies with those of the queue.

        A part on another node than its job's record may outlive the job, unknown to it, and expires: its bodies are
        chunks of its own.
        """
        job, part, packed = self._job, self.part, [chunk.packed() for chunk in chunks]
        messages = sum(chunk.messages for chunk in chunks)
        if part.staged.apart(job.home):
            enlisted = yield own.stage_enlist(job.home, job.name, job.run, job.time_limit, part.staged, messages)
            if enlisted != "ok":
                return str(enlisted)
            request = own.stage_apart(job.name, part.staged, part.chunks, packed, job.time_limit + ORPHANED)
        else:
            values = [chunk.arguments() for chunk in bodies]
            references = [one for chunk in bodies for one in references_of(chunk)]
            run = (job.home, job.name, job.run, job.time_limit)
            request = own.stage(*run, part.staged, part.chunks, packed, values, references, messages)
        try:
            *_, answer = yield request
        except OutcomeUnknown:  # the script recognizes a repeated call
            *_, answer = yield request
        return str(answer)


def wait_for(job: Job, size: int, rate: int) -> Steps[float]:
    """Return for how many seconds a writer waits that has just staged these bytes, at the rate of all writers."""
    wait = yield own.stage_admit(job.home, job.name, job.run, job.time_limit, size, rate)
    return float(wait) / 1000


def open_job(job: Job) -> Steps[bool]:
    """Begin a job; return False if an earlier run has committed it, so that there is nothing to write."""
    state = yield own.stage_open(job.home, job.name, job.run, job.time_limit)
    return bool(state == "open")


def commit(
    job: Job, parts: Sequence[Part], turn: Turn | None = None, about: Summary | None = None, durability: str = ""
) -> Steps[Literal["committed", "already", "repeated"]]:
    """Decide that exactly these parts of the job become visible; `roll_forward` moves them afterwards.

    A turn that has been committed, or a later one, is not committed again: the answer is "repeated" and the job is
    aborted. `durability`: that the commit is to have, for those who ask later. Raises JobClosed, QueueFull (max_length,
    max_bytes): then nothing becomes visible.
    """
    parts = [part for part in parts if part.chunks]
    yield from _check(job, parts)
    manifest, messages = _encode_manifest(parts), sum(part.messages for part in parts)
    place = (turn.of, turn.number, turn.versions) if turn is not None else ("", 0, False)
    text = encode(about) if about is not None else b""
    answer = yield own.commit(job.home, job.name, job.run, manifest, messages, job.remembered, *place, text, durability)
    if answer == "closed":
        raise (yield from _why_closed(job, answer))
    if answer == "repeated":
        yield from abort(job)
        return "repeated"
    return "already" if answer == "already" else "committed"


def _check(job: Job, parts: Sequence[Part]) -> Steps[None]:
    if (yield ops.job_record(job.home, job.name)).committed:
        return  # repeats a commit with a lost reply
    for page in pieces(parts, _PARTS_PER_TRIP):
        # From here on no part expires by itself: it is in the job's record.
        apart = [part.staged for part in page if part.staged.apart(job.home)]
        lengths = yield [
            *(own.stage_keep(job.name, staged) for staged in apart),
            *(own.staged_chunks(job.name, part.staged) for part in page),
        ]
        if lengths[len(apart) :] != [part.chunks for part in page]:
            raise (yield from _why_closed(job, "torn"))
    if gone := (yield from given_up({part.queue for part in parts})):
        raise JobClosed(
            f"job {job.name}: {', '.join(gone)} is no partition of its queue any more; nothing becomes visible. The "
            "number of partitions has changed since: run the job again"
        )
    for queue in sorted({part.queue for part in parts}):
        of_it = [part for part in parts if part.queue == queue]
        staged = [part.staged.key(job.name) for part in of_it]
        yield from check_room(job.name, queue, sum(part.messages for part in of_it), staged)


def commit_of(job: Job, turn: Turn | None) -> ops.Op[str | None]:
    """Return the op that reads the durability that a commit was to have; None if the job, or its turn, has none."""
    if turn is None:
        return own.committed(job.home, job.name)
    return own.committed_turn(job.home, turn.of, turn.number, turn.versions)


def outcome(home: JobKeys, job: str) -> Steps[int | None]:
    """Return how many messages a job has committed; None if it is not committed or no longer remembered."""
    record: ops.JobRecord = yield ops.job_record(home, job)
    return record.messages if record.committed else None


def roll_parts(job: Job, parts: Iterable[Part], progress: Progress = unwatched) -> Steps[None]:
    """Move these parts of a committed job into their queues; for a leader that moves others at the same time."""
    done = noted = 0
    for part in parts:
        for _ in range(part.chunks):
            moved = yield from _roll(job, part.staged)
            if moved is None:
                break  # others roll it forward too
            done += moved
            progress(done)
            if done - noted >= _NOTED:
                yield from _note(job, done - noted)
                noted = done
    yield from _note(job, done - noted)


def _note(job: Job, messages: int) -> Steps[None]:
    """Note that messages became visible, for those who watch the job; a full Redis that refuses it does no harm."""
    with suppress(QueueFull):
        if messages:
            yield own.count_rolled(job.home, job.name, messages)


def roll_forward(job: Job, at_most: int | None = None) -> Steps[int]:
    """Move the committed messages into their queues in up to `at_most` steps, and end the job after the last one.

    Return how many messages moved: 0 if the job is not committed, or over.
    """
    manifest = yield own.job_manifest(job.home, job.name)
    if manifest is None:
        return 0
    moved, over = yield from _roll_some(job, _decode_manifest(manifest), at_most)
    yield from _note(job, moved)
    if over:
        yield from _clear(job)
    return moved


def _roll_some(job: Job, parts: Sequence[Part], at_most: int | None) -> Steps[tuple[int, bool]]:
    """Move parts in up to `at_most` steps; return how many messages moved, and whether the parts are empty now."""
    moved = steps = 0
    for page in pieces(parts, _PARTS_PER_TRIP):
        lengths = yield [own.staged_chunks(job.name, part.staged) for part in page]
        for part, length in zip(page, lengths, strict=True):
            for _ in range(length):
                if steps == at_most:
                    return moved, False
                messages = yield from _roll(job, part.staged)
                if messages is None:
                    break  # others roll it forward too
                moved, steps = moved + messages, steps + 1
    return moved, True


def _roll(job: Job, staged: Staged) -> Steps[int | None]:
    """Make the first chunk of a part visible; return how many messages it had, None if there is no chunk left."""
    while True:
        first, follows, *_ = yield own.first_chunk(job.name, staged)
        if first is None:
            yield Transaction(())
            return None
        elements, bodies = None if follows else elements_of(first), bodies_of(first)
        try:
            if elements is not None:
                if (yield own.roll(job.name, staged, elements)) is not None:
                    return elements.count
            elif bodies is not None:
                if (yield own.roll_bodies(job.name, staged, bodies)) is not None:
                    return 0
            else:
                yield Transaction(())
                if (moved := (yield from _roll_by_script(job, staged, first))) is not None:
                    return moved
        except OutcomeUnknown:
            continue  # read the first chunk again
        except QueueFull:
            if (moved := (yield from _roll_by_script(job, staged, first))) is not None:
                return moved


def _roll_by_script(job: Job, staged: Staged, first: bytes) -> Steps[int | None]:
    """Let the script move the first chunk; None if another client has moved the one that was read."""
    wanted = [(digest, group_in(element)) for digest, element in deduplicated(first)]
    elsewhere = yield from first_elsewhere(staged.keys, wanted)
    messages, _, duplicates = yield own.commit_roll(job.name, staged, [digest for digest, _ in wanted], elsewhere)
    if duplicates:
        with suppress(QueueFull):
            yield own.count_duplicates(job.home, job.name, logical_name(staged.keys.queue), duplicates)
    return None if messages < 0 else int(messages)


def abort(job: Job, overdue: bool = False) -> Steps[bool]:
    """Remove everything that the job has staged; return False if it is committed or belongs to another run.

    `overdue`: abort only if its time limit has passed.
    """
    aborted = bool((yield own.stage_abort(job.home, job.name, job.run, overdue)))
    if aborted:
        yield from _clear(job)
    return aborted


def abort_others(job: Job, prefix: str) -> Steps[None]:
    """Abort the open jobs with this prefix other than this one: those left behind by dead runs of the same leader."""
    for name in (yield own.jobs_first_due(job.home, _PARTS_PER_TRIP)):
        if name.startswith(prefix) and name != job.name:
            record = yield ops.job_record(job.home, name)
            yield from abort(Job(job.home, name, record.run))


def _clear(job: Job) -> Steps[None]:
    """Remove the parts of a job and, with the last of them, its record."""
    left = 1
    while left > 0:
        # In this order: none of these parts belongs to a run that has started since.
        names, record = yield [
            own.job_parts(job.home, job.name, _PARTS_PER_TRIP),
            ops.job_record(job.home, job.name),
        ]
        if record.state == JobState.OPEN or record.run != job.run:
            return
        parts = [Staged.of(name) for name in names]
        if apart := [part for part in parts if part.apart(job.home)]:
            yield [own.stage_drop(job.name, part) for part in apart]
        yield from _unstage(job, [part for part in parts if not part.apart(job.home)])
        left = yield own.stage_clear(job.home, job.name, job.run, job.remembered, parts)


def _unstage(job: Job, parts: Sequence[Staged]) -> Steps[None]:
    """Delete the chunks of parts that were not approved, and the bodies that were stored for them."""
    if not parts:
        return
    stored, *lengths = yield [
        ops.hash_size(parts[0].keys.bodies),
        *(own.staged_chunks(job.name, part) for part in parts),
    ]
    for part, length in zip(parts, lengths, strict=True):
        while stored and length:
            length = yield own.unstage(job.name, part, _CHUNKS_PER_TRIP)


def finish_due(home: JobKeys, due: Iterable[bytes], at_most: int | None = None) -> Steps[int]:
    """Finish jobs that their leaders have left: roll forward or remove them. For monitors; return how many moved."""
    moved = 0
    for name in due:
        record = yield ops.job_record(home, name.decode())
        job = Job(home, name.decode(), record.run)
        match record.state:
            case JobState.COMMITTED:
                moved += yield from roll_forward(job, at_most)
            case JobState.OPEN:
                yield from abort(job, overdue=True)
            case _:
                yield from _clear(job)
    return moved


def due_jobs(home: JobKeys, now: int) -> ops.Op[list[bytes]]:
    """Return the op that reads the jobs that are decided but not over, or open beyond their time limit."""
    return own.jobs_due(home, now, _JOBS_PER_TRIP)


def _why_closed(job: Job, answer: str) -> Steps[JobClosed]:
    """Return why a run cannot go on, as the job's record tells it now."""
    record = yield ops.job_record(job.home, job.name)
    if record.committed and record.run == job.run:
        return JobClosed(f"job {job.name} is committed; nothing of this attempt becomes visible")
    if record.committed:
        why = "was committed by another run"
    elif record.state and record.run != job.run:
        why = "was started again by another run since"
    elif answer == "torn" and record.state != JobState.ABORTED:
        return JobClosed(f"job {job.name}: Redis has lost staged messages; nothing becomes visible")
    else:
        why = f"was aborted, or was silent for its time limit of {job.time_limit:g} s"
    return JobClosed(f"job {job.name} {why}; nothing of this run becomes visible")
