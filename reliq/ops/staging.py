"""Staged jobs: chunks that nobody sees until their job commits."""

from collections.abc import Sequence
from dataclasses import dataclass

from reliq.model.keys import JobKeys, QueueKeys
from reliq.ops.request import Argument, Op, Packed, Transaction, Watch, as_text, milliseconds, script_named, scripted


def stage_open(home: JobKeys, job: str, run: str, limit: float) -> Op[str]:
    return scripted("stage_open", (home.job(job), home.jobs), (job, run, milliseconds(limit)), as_text)


@dataclass(frozen=True, slots=True)
class Staged:
    """A list of chunks: one part of a job, for one queue."""

    keys: QueueKeys
    part: str

    def key(self, job: str) -> str:
        return self.keys.staged(job, self.part)

    def apart(self, home: JobKeys) -> bool:
        """Whether it may lie on another node of a cluster than the job's record."""
        return self.keys.jobs != home.jobs

    def __str__(self) -> str:
        """As the job's record has it."""
        return f"{self.keys.queue} {self.part}"

    @classmethod
    def of(cls, text: str) -> "Staged":
        queue, _, part = text.partition(" ")
        return cls(QueueKeys(queue), part)


def stage(
    home: JobKeys, job: str, run: str, limit: float, staged: Staged, before: int, chunks: Sequence[Argument]
) -> Transaction:
    """May be sent again: the script knows by `before`, the chunks the part has, a call that was carried out.

    The chunks do not go through the script: Lua would hash every byte of them.
    """
    key = staged.key(job)
    names = (home.job(job), home.jobs, home.parts(job), key)
    arguments = (job, run, milliseconds(limit), str(staged), before, len(chunks))
    script = Op(("EVAL", script_named("stage").source, len(names), *names, *arguments), as_text)
    return Transaction((Op(("RPUSH", key, *chunks)), script))


def stage_enlist(home: JobKeys, job: str, run: str, limit: float, staged: Staged) -> Op[str]:
    names = (home.job(job), home.jobs, home.parts(job))
    return scripted("stage_enlist", names, (job, run, milliseconds(limit), str(staged)), as_text)


def stage_apart(job: str, staged: Staged, before: int, chunks: Sequence[Argument], live: float) -> Transaction:
    """As `stage`, for a part that lies apart from the job's record, behind `stage_enlist`; `live`: seconds."""
    key = staged.key(job)
    arguments = (before, len(chunks), milliseconds(live))
    script = Op(("EVAL", script_named("stage_apart").source, 1, key, *arguments), as_text)
    return Transaction((Op(("RPUSH", key, *chunks)), script))


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
    """The first chunk of a part, for `roll`. What `roll` would find to be of a wrong type is refused here."""
    key, keys = staged.key(job), staged.keys
    return Watch((key,), (Op(("LINDEX", key, 0)), Op(("LLEN", keys.messages)), Op(("HLEN", keys.counters))))


def roll(job: str, staged: Staged, elements: Packed) -> Transaction:
    """Move the first chunk of a committed part, which has these elements, into the queue, if nobody else has."""
    keys = staged.keys
    return Transaction(
        (
            Op(("LTRIM", staged.key(job), 1, -1)),
            Op(("LPUSH", keys.messages, elements)),
            Op(("HINCRBY", keys.counters, "enqueued", elements.count)),
        )
    )


def commit_roll(job: str, staged: Staged) -> Op[tuple[int, int]]:
    """The same by a script, for delayed messages and when memory is full.

    Answers how many messages moved, and how many chunks are left.
    """
    keys = staged.keys
    names = (staged.key(job), keys.messages, keys.delayed, keys.counters, keys.index)
    return scripted("commit_roll", names, (), tuple)
