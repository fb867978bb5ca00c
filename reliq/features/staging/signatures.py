"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable, Sequence

from reliq.ops.request import Argument, Call


def commit(
    *,
    job: str,
    jobs: str,
    epochs: str,
    name: Argument,
    run: Argument,
    manifest: Argument,
    remembered: Argument,
    stream: Argument,
    epoch: Argument,
    messages: Argument,
    about: Argument,
) -> Call:
    return "staging/commit", (job, jobs, epochs), (name, run, manifest, remembered, stream, epoch, messages, about)


def commit_roll(
    *, staged: str, places: Sequence[str], delayed: str, dead: str, index: str, dedup_keys: Iterable[str]
) -> Call:
    return "staging/commit_roll", (staged, *places, delayed, dead, index, *dedup_keys), ()


def stage(
    *,
    job: str,
    jobs: str,
    parts: str,
    staged: str,
    bodies: str,
    name: Argument,
    run: Argument,
    limit_ms: Argument,
    part: Argument,
    before: float,
    chunks: float,
    messages: Argument,
    references: Iterable[Argument],
) -> Call:
    return (
        "staging/stage",
        (job, jobs, parts, staged, bodies),
        (name, run, limit_ms, part, before, chunks, messages, *references),
    )


def stage_abort(*, job: str, jobs: str, name: Argument, run: Argument, overdue: bool) -> Call:
    return "staging/stage_abort", (job, jobs), (name, run, int(overdue))


def stage_admit(
    *, job: str, jobs: str, name: Argument, run: Argument, limit_ms: Argument, bytes: float, rate: float
) -> Call:
    return "staging/stage_admit", (job, jobs), (name, run, limit_ms, bytes, rate)


def stage_apart(*, staged: str, before: float, chunks: float, live_ms: Argument) -> Call:
    return "staging/stage_apart", (staged,), (before, chunks, live_ms)


def stage_bodies(*, bodies: str, references: Iterable[Argument]) -> Call:
    return "staging/stage_bodies", (bodies,), (*references,)


def stage_clear(
    *,
    job: str,
    jobs: str,
    parts: str,
    ended: str,
    lists: Iterable[str],
    name: Argument,
    run: Argument,
    remembered: Argument,
    names: Iterable[Argument],
) -> Call:
    return "staging/stage_clear", (job, jobs, parts, ended, *lists), (name, run, remembered, *names)


def stage_enlist(
    *,
    job: str,
    jobs: str,
    parts: str,
    name: Argument,
    run: Argument,
    limit_ms: Argument,
    part: Argument,
    messages: Argument,
) -> Call:
    return "staging/stage_enlist", (job, jobs, parts), (name, run, limit_ms, part, messages)


def stage_open(*, job: str, jobs: str, name: Argument, run: Argument, limit_ms: Argument) -> Call:
    return "staging/stage_open", (job, jobs), (name, run, limit_ms)


def unstage(*, staged: str, bodies: str, chunks: Argument) -> Call:
    return "staging/unstage", (staged, bodies), (chunks,)
