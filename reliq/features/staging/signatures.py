"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable

from reliq.contract.key_names import JobKeys, NamedKeys
from reliq.ops.request import Argument, Call


def commit(
    keys: JobKeys, *, job: str, latest: str, name: Argument, run: Argument, manifest: Argument, remembered: Argument,
    stream: Argument, epoch: Argument, messages: Argument, about: Argument, durability: Argument,
) -> Call:
    return (
        "staging/commit",
        (job, keys.jobs, latest),
        (name, run, manifest, remembered, stream, epoch, messages, about, durability),
    )


def commit_roll(keys: NamedKeys, *, staged: str, dedup_keys: Iterable[str], elsewhere: Iterable[Argument]) -> Call:
    return (
        "staging/commit_roll",
        (staged, *keys.places, keys.delayed, keys.dead, keys.index, *dedup_keys),
        (*elsewhere,),
    )


def stage(
    keys: JobKeys, *, job: str, parts: str, staged: str, stored_bodies: str, name: Argument, run: Argument,
    limit_ms: Argument, part: Argument, before: float, chunks: float, messages: Argument,
    references: Iterable[Argument],
) -> Call:
    return (
        "staging/stage",
        (job, keys.jobs, parts, staged, stored_bodies),
        (name, run, limit_ms, part, before, chunks, messages, *references),
    )


def stage_abort(keys: JobKeys, *, job: str, name: Argument, run: Argument, overdue: bool) -> Call:
    return "staging/stage_abort", (job, keys.jobs), (name, run, int(overdue))


def stage_admit(
    keys: JobKeys, *, job: str, name: Argument, run: Argument, limit_ms: Argument, bytes: float, rate: float,
) -> Call:
    return "staging/stage_admit", (job, keys.jobs), (name, run, limit_ms, bytes, rate)


def stage_apart(*, staged: str, before: float, chunks: float, live_ms: Argument) -> Call:
    return "staging/stage_apart", (staged,), (before, chunks, live_ms)


def stage_bodies(keys: NamedKeys, *, references: Iterable[Argument]) -> Call:
    return "staging/stage_bodies", (keys.bodies,), (*references,)


def stage_clear(
    keys: JobKeys, *, job: str, parts: str, lists: Iterable[str], name: Argument, run: Argument, remembered: Argument,
    names: Iterable[Argument],
) -> Call:
    return "staging/stage_clear", (job, keys.jobs, parts, keys.ended, *lists), (name, run, remembered, *names)


def stage_enlist(
    keys: JobKeys, *, job: str, parts: str, name: Argument, run: Argument, limit_ms: Argument, part: Argument,
    messages: Argument,
) -> Call:
    return "staging/stage_enlist", (job, keys.jobs, parts), (name, run, limit_ms, part, messages)


def stage_open(keys: JobKeys, *, job: str, name: Argument, run: Argument, limit_ms: Argument) -> Call:
    return "staging/stage_open", (job, keys.jobs), (name, run, limit_ms)


def unstage(keys: NamedKeys, *, staged: str, chunks: Argument) -> Call:
    return "staging/unstage", (staged, keys.bodies), (chunks,)
