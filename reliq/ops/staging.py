"""Ops of staged jobs: chunks that stay invisible until their job commits."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reliq.model.keys import JobKeys, QueueKeys
from reliq.ops.browse import as_names, first_names, up_to
from reliq.ops.policy import follows
from reliq.ops.request import Argument, Op, Packed, Transaction, Watch, as_text, milliseconds, script_named, scripted
from reliq.ops.schema import Counter, Job


class JobState(StrEnum):
    """The state of a staged job. An aborted job is forgotten after a while."""

    OPEN = "open"
    COMMITTED = "committed"  #: its parts are being rolled forward
    DONE = "done"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A staged job. `state`: a JobState, empty without such a job. `messages`: how many it has committed.

    `opened`: ms since the epoch. `staged`: messages that were staged, also by attempts that are not committed.
    `rolled`: those that became visible.
    """

    state: str
    run: str
    messages: int
    opened: int = 0
    staged: int = 0
    rolled: int = 0

    @property
    def committed(self) -> bool:
        return self.state in (JobState.COMMITTED, JobState.DONE)


def job_record(home: JobKeys, job: str) -> Op[JobRecord]:
    fields = (Job.STATE, Job.RUN, Job.MESSAGES, Job.OPENED, Job.STAGED, Job.ROLLED)
    return Op(("HMGET", home.job(job), *fields), _read_job)


def _read_job(reply: list[bytes | None]) -> JobRecord:
    state, run, *numbers = reply
    return JobRecord((state or b"").decode(), (run or b"").decode(), *(int(number or 0) for number in numbers))


def count_rolled(home: JobKeys, job: str, messages: int) -> Op[int]:
    """Note that messages of a committed job became visible; only for those who watch it."""
    return Op(("HINCRBY", home.job(job), Job.ROLLED, messages))


def job_manifest(home: JobKeys, job: str) -> Op[bytes | None]:
    """Read the committed parts of a job; None if it is not committed, or completely rolled forward."""
    return Op(("HGET", home.job(job), Job.MANIFEST))


def jobs_due(home: JobKeys, now: int, limit: int) -> Op[list[bytes]]:
    """Read the jobs that are decided but not over, or open beyond their time limit."""
    return up_to(home.jobs, now, limit)


def jobs_first_due(home: JobKeys, count: int) -> Op[list[str]]:
    return first_names(home.jobs, count)


def job_parts(home: JobKeys, job: str, count: int) -> Op[list[str]]:
    """Read some of the staged parts of a job, in the text form of `Staged`."""
    return Op(("SRANDMEMBER", home.parts(job), count), as_names)


def stage_open(home: JobKeys, job: str, run: str, limit: float) -> Op[str]:
    return scripted("stage_open", (home.job(job), home.jobs), (job, run, milliseconds(limit)), as_text)


@dataclass(frozen=True, slots=True)
class Staged:
    """One part of a job for one queue: a list of chunks."""

    keys: QueueKeys
    part: str

    def key(self, job: str) -> str:
        return self.keys.staged(job, self.part)

    def apart(self, home: JobKeys) -> bool:
        """Whether the part may lie on another node of a cluster than the job's record."""
        return self.keys.jobs != home.jobs

    def __str__(self) -> str:
        """Return the text that stands for the part in the job's record."""
        return f"{self.keys.queue} {self.part}"

    @classmethod
    def of(cls, text: str) -> "Staged":
        queue, _, part = text.partition(" ")
        return cls(QueueKeys(queue), part)


def stage(
    home: JobKeys,
    job: str,
    run: str,
    limit: float,
    staged: Staged,
    before: int,
    chunks: Sequence[Argument],
    bodies: Sequence[Packed] = (),
    references: Sequence[bytes] = (),
    messages: int = 0,
) -> Transaction:
    """Add chunks to a part. By `before`, the number of chunks so far, the script recognizes a repeated call.

    `bodies`: references and bodies to be stored with the queue's; their elements are in these chunks or earlier ones.
    The chunks and bodies are not arguments of the script: Lua would hash every byte of them. The script's reply is the
    last one.
    """
    key, bodies_key = staged.key(job), staged.keys.bodies
    names = (home.job(job), home.jobs, home.parts(job), key, bodies_key)
    arguments: list[Argument] = [job, run, milliseconds(limit), str(staged), before, len(chunks), messages]
    arguments += references
    script = Op(("EVAL", script_named("stage").source, len(names), *names, *arguments), as_text)
    store: list[Op[Any]] = []
    if bodies:
        note: Op[Any] = Op(("EVAL", script_named("stage_bodies").source, 1, bodies_key, *references))
        store = [note, Op(("HSET", bodies_key, *bodies))]
    append: list[Op[Any]] = [Op(("RPUSH", key, *chunks))] if chunks else []
    return Transaction((*append, *store, script))


def unstage(job: str, staged: Staged, chunks: int) -> Op[int]:
    """Delete up to `chunks` chunks of a part, with the bodies of their messages; the reply is how many are left."""
    return scripted("unstage", (staged.key(job), staged.keys.bodies), (chunks,))


def stage_enlist(home: JobKeys, job: str, run: str, limit: float, staged: Staged, messages: int = 0) -> Op[str]:
    names = (home.job(job), home.jobs, home.parts(job))
    return scripted("stage_enlist", names, (job, run, milliseconds(limit), str(staged), messages), as_text)


def stage_apart(job: str, staged: Staged, before: int, chunks: Sequence[Argument], live: float) -> Transaction:
    """Add chunks to a part on another node than the job's record, after `stage_enlist`. `live`: seconds."""
    key = staged.key(job)
    arguments = (before, len(chunks), milliseconds(live))
    script = Op(("EVAL", script_named("stage_apart").source, 1, key, *arguments), as_text)
    return Transaction((Op(("RPUSH", key, *chunks)), script))


def stage_keep(job: str, staged: Staged) -> Op[int]:
    """Remove the time to live that `stage_apart` has set for a part."""
    return Op(("PERSIST", staged.key(job)))


def staged_chunks(job: str, staged: Staged) -> Op[int]:
    """Read the number of chunks of a part."""
    return Op(("LLEN", staged.key(job)))


def stage_drop(job: str, staged: Staged) -> Op[int]:
    return Op(("UNLINK", staged.key(job)))


def stage_abort(home: JobKeys, job: str, run: str, overdue: bool = False) -> Op[bool]:
    return scripted("stage_abort", (home.job(job), home.jobs), (job, run, int(overdue)), bool)


def stage_clear(home: JobKeys, job: str, run: str, remembered: float, parts: Sequence[Staged]) -> Op[int]:
    here = (staged.key(job) for staged in parts if not staged.apart(home))
    names = (home.job(job), home.jobs, home.parts(job), *here)
    return scripted("stage_clear", names, (job, run, milliseconds(remembered), *map(str, parts)))


def commit(
    home: JobKeys,
    job: str,
    run: str,
    manifest: bytes,
    messages: int,
    remembered: float,
    stream: str = "",
    epoch: int = 0,
) -> Op[str]:
    names = (home.job(job), home.jobs, home.epochs)
    return scripted("commit", names, (job, run, manifest, milliseconds(remembered), stream, epoch, messages), as_text)


def first_chunk(job: str, staged: Staged) -> Watch:
    """Watch and read the first chunk of a part for `roll`, and refuse keys of a wrong type before `roll` writes.

    The second reply is whether the queue follows its messages: then only `commit_roll` moves them.
    """
    key, keys = staged.key(job), staged.keys
    types = (("LLEN", keys.messages), ("HLEN", keys.counters), ("HLEN", keys.bodies))
    return Watch((key,), (Op(("LINDEX", key, 0)), follows(keys), *map(Op, types)))


def roll(job: str, staged: Staged, elements: Packed) -> Transaction:
    """Move the first chunk of a committed part, with these elements, into the queue; once, also with other clients."""
    keys = staged.keys
    return Transaction(
        (
            Op(("LTRIM", staged.key(job), 1, -1)),
            Op(("LPUSH", keys.messages, elements)),
            Op(("HINCRBY", keys.counters, Counter.ENQUEUED, elements.count)),
        )
    )


def roll_bodies(job: str, staged: Staged, bodies: Packed) -> Transaction:
    """Move the first chunk, with these references and bodies, to the bodies of the queue. Their elements follow."""
    return Transaction((Op(("LTRIM", staged.key(job), 1, -1)), Op(("HSET", staged.keys.bodies, bodies))))


def commit_roll(job: str, staged: Staged, dedup: Sequence[str] = ()) -> Op[tuple[int, int]]:
    """Move the first chunk with a script: messages that have to be placed, and any chunk when memory is full.

    `dedup`: the digests of the deduplication keys of the chunk, as `chunks.read` has found them. The reply is how many
    messages moved, and how many chunks are left; -1 moved: these are the keys of another chunk, nothing was done.
    """
    keys = staged.keys
    names = (staged.key(job), *keys.places, keys.delayed, keys.dead, keys.index, *map(keys.dedup_of, dedup))
    return scripted("commit_roll", names, (), tuple)
