"""Ops of staged jobs: chunks that stay invisible until their job commits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reliq.features.staging import signatures
from reliq.features.staging.model import Ended, Written, encode, read_ended, read_written
from reliq.model.keys import JobKeys, QueueKeys
from reliq.ops.browse import as_names, first_names, up_to
from reliq.ops.jobs import JobState
from reliq.ops.policy import follows
from reliq.ops.request import Argument, Op, Packed, Transaction, Watch, as_text, milliseconds, scripted, scripted_within
from reliq.ops.schema import Counter, Job


def count_rolled(home: JobKeys, job: str, messages: int) -> Op[int]:
    """Note that messages of a committed job became visible; only for those who watch it."""
    return Op(("HINCRBY", home.job(job), Job.ROLLED, messages))


def forget_count(home: JobKeys, job: str) -> Op[int]:
    """Remove what `count_rolled` has left of a job that there is not."""
    return Op(("HDEL", home.job(job), Job.ROLLED))


def count_duplicates(home: JobKeys, job: str, queue: str, messages: int) -> Op[int]:
    """Note that messages of a committed job were left out, because of their dedup keys."""
    return Op(("HINCRBY", home.job(job), f"{Job.DEDUPLICATED} {queue}", messages))


def duplicates(home: JobKeys, job: str) -> Op[dict[str, int]]:
    """Read how many messages of a job were left out because of their dedup keys, by queue."""
    return Op(("HGETALL", home.job(job)), _read_duplicates)


def _read_duplicates(reply: list[bytes]) -> dict[str, int]:
    fields = {name.decode(): count for name, count in zip(reply[::2], reply[1::2], strict=True)}
    prefix = f"{Job.DEDUPLICATED} "
    return {name.removeprefix(prefix): int(count) for name, count in fields.items() if name.startswith(prefix)}


def ended_jobs(home: JobKeys, count: int) -> Op[list[Ended]]:
    """Read the jobs that have ended, the latest first."""
    return Op(("LRANGE", home.ended, 0, count - 1), lambda reply: list(map(read_ended, reply)))


def note_write(home: JobKeys, session: str, written: Written, remembered: float) -> Op[bool]:
    """Note the latest write of a Spark session."""
    return Op(("SET", home.latest_write(session), encode(written), "PX", milliseconds(remembered)), bool)


def latest_write(home: JobKeys, session: str) -> Op[Written | None]:
    return Op(("GET", home.latest_write(session)), lambda reply: reply and read_written(reply))


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


def stage_admit(home: JobKeys, job: str, run: str, limit: float, size: int, rate: int) -> Op[int]:
    """Note bytes that a job has staged at `rate` bytes a second; the reply is how many ms their writer waits.

    Repeated after a lost reply, it notes them twice: the writer waits longer.
    """
    call = signatures.stage_admit(
        home, job=home.job(job), name=job, run=run, limit_ms=milliseconds(limit), bytes=size, rate=rate
    )
    return scripted(call)


def stage_open(home: JobKeys, job: str, run: str, limit: float) -> Op[str]:
    call = signatures.stage_open(home, job=home.job(job), name=job, run=run, limit_ms=milliseconds(limit))
    return scripted(call, as_text)


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
    call = signatures.stage(
        home,
        job=home.job(job),
        parts=home.parts(job),
        staged=key,
        stored_bodies=bodies_key,
        name=job,
        run=run,
        limit_ms=milliseconds(limit),
        part=str(staged),
        before=before,
        chunks=len(chunks),
        messages=messages,
        references=references,
    )
    script = scripted_within(call, as_text)
    store: list[Op[Any]] = []
    if bodies:
        store = [stage_bodies(staged, references), Op(("HSET", bodies_key, *bodies))]
    append: list[Op[Any]] = [Op(("RPUSH", key, *chunks))] if chunks else []
    return Transaction((*append, *store, script))


def stage_bodies(staged: Staged, references: Sequence[bytes]) -> Op[int]:
    """Begin a Transaction that stores bodies, and note which of them it stores; the reply is how many."""
    return scripted_within(signatures.stage_bodies(staged.keys, references=references))


def unstage(job: str, staged: Staged, chunks: int) -> Op[int]:
    """Delete up to `chunks` chunks of a part, with the bodies of their messages; the reply is how many are left."""
    return scripted(signatures.unstage(staged.keys, staged=staged.key(job), chunks=chunks))


def stage_enlist(home: JobKeys, job: str, run: str, limit: float, staged: Staged, messages: int = 0) -> Op[str]:
    call = signatures.stage_enlist(
        home,
        job=home.job(job),
        parts=home.parts(job),
        name=job,
        run=run,
        limit_ms=milliseconds(limit),
        part=str(staged),
        messages=messages,
    )
    return scripted(call, as_text)


def stage_apart(job: str, staged: Staged, before: int, chunks: Sequence[Argument], live: float) -> Transaction:
    """Add chunks to a part on another node than the job's record, after `stage_enlist`. `live`: seconds."""
    key = staged.key(job)
    call = signatures.stage_apart(staged=key, before=before, chunks=len(chunks), live_ms=milliseconds(live))
    return Transaction((Op(("RPUSH", key, *chunks)), scripted_within(call, as_text)))


def stage_keep(job: str, staged: Staged) -> Op[int]:
    """Remove the time to live that `stage_apart` has set for a part."""
    return Op(("PERSIST", staged.key(job)))


def staged_chunks(job: str, staged: Staged) -> Op[int]:
    """Read the number of chunks of a part."""
    return Op(("LLEN", staged.key(job)))


def stage_drop(job: str, staged: Staged) -> Op[int]:
    return Op(("UNLINK", staged.key(job)))


def stage_abort(home: JobKeys, job: str, run: str, overdue: bool = False) -> Op[bool]:
    call = signatures.stage_abort(home, job=home.job(job), name=job, run=run, overdue=overdue)
    return scripted(call, bool)


def stage_clear(home: JobKeys, job: str, run: str, remembered: float, parts: Sequence[Staged]) -> Op[int]:
    call = signatures.stage_clear(
        home,
        job=home.job(job),
        parts=home.parts(job),
        lists=[staged.key(job) for staged in parts if not staged.apart(home)],
        name=job,
        run=run,
        remembered=milliseconds(remembered),
        names=map(str, parts),
    )
    return scripted(call)


def commit(
    home: JobKeys,
    job: str,
    run: str,
    manifest: bytes,
    messages: int,
    remembered: float,
    stream: str = "",
    epoch: int = 0,
    versions: bool = False,
    about: bytes = b"",
    durability: str = "",
) -> Op[str]:
    """Commit a job. `versions`: `stream` is an application, and `epoch` the version of its transaction.

    `about`: a `Summary`, encoded, for the list of ended jobs. `durability`: that of the commit; empty: not known.
    """
    call = signatures.commit(
        home,
        job=home.job(job),
        latest=home.versions if versions else home.epochs,
        name=job,
        run=run,
        manifest=manifest,
        remembered=milliseconds(remembered),
        stream=stream,
        epoch=epoch,
        messages=messages,
        about=about,
        durability=durability,
    )
    return scripted(call, as_text)


def committed(home: JobKeys, job: str) -> Op[str | None]:
    """Read the durability that the commit of a job was to have; None if it is not committed, or not known any more."""
    return Op(("HMGET", home.job(job), Job.STATE, Job.DURABILITY), _read_committed)


def _read_committed(reply: list[bytes | None]) -> str | None:
    state, durability = (as_text(one or b"") for one in reply)
    return durability if state in (JobState.COMMITTED, JobState.DONE) else None


def committed_turn(home: JobKeys, of: str, number: int, versions: bool) -> Op[str | None]:
    """Read the same of an epoch of a stream or, with `versions`, a version of an application: of it or a later one."""

    def read(reply: bytes | None) -> str | None:
        last, _, *durability = as_text(reply or b"-1 0").split()
        return "".join(durability) if number <= int(last) else None

    return Op(("HGET", home.versions if versions else home.epochs, of), read)


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


def commit_roll(
    job: str, staged: Staged, dedup: Sequence[str] = (), elsewhere: Sequence[bytes] = ()
) -> Op[tuple[int, int, int]]:
    """Move the first chunk with a script: messages that have to be placed, and any chunk when memory is full.

    `dedup`: the digests of the deduplication keys of the chunk, as `chunks.deduplicated` has found them; `elsewhere`:
    what their other homes know of the first messages. The reply is how many messages moved, how many chunks are left,
    and how many messages were duplicates; -1 moved: these are the keys of another chunk, nothing was done.
    """
    names = map(staged.keys.dedup_of, dedup)
    call = signatures.commit_roll(staged.keys, staged=staged.key(job), dedup_keys=names, elsewhere=elsewhere)
    return scripted(call, tuple)
