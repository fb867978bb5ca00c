"""The workers: every process that consumes, with its queues and what it runs."""

from collections.abc import Sequence
from typing import Any

from reliq import ops
from reliq.errors import ReliqError
from reliq.model import worker
from reliq.model.instruction import Instruction
from reliq.model.keys import QueueKeys, owner_of, process_of
from reliq.model.worker import Consuming, WorkerProcess
from reliq.ops import Op, Steps, Together
from reliq.protocol.partial_reads import every_queue
from reliq.runtime.looking import is_away, missing_now, unseen
from reliq.runtime.pieces import pieces

_GROUP = 100  #: queues that are read in a round trip
_CONSUMERS = 1000  #: of a queue that are read


def every_worker() -> Steps[list[WorkerProcess]]:
    """Read the workers of all queues, by host and pid; those that do not say who they are come last.

    A queue that cannot be read is left out: `reliq queue stats` says why.
    """
    return by_process((yield from consuming((yield from every_queue()))))


def consuming(queues: Sequence[str]) -> Steps[list[Consuming]]:
    """Read the consumers of these queues, by halves where some cannot be read."""
    found: list[Consuming] = []
    groups = [*pieces(queues, _GROUP)]
    while groups:
        some = groups.pop()
        try:
            found += yield from _read(some)
        except ReliqError as error:
            if is_away(error) and (missing_now() is None or not error.node):
                raise
            if len(some) > 1:
                groups += [some[len(some) // 2 :], some[: len(some) // 2]]
            elif is_away(error):
                unseen(f"queue {some[0]}", error)
    return found


def by_process(found: Sequence[Consuming]) -> list[WorkerProcess]:
    """Return the processes to which these consumers belong."""
    workers: dict[str, WorkerProcess] = {}
    for one in found:
        process = workers.setdefault(process_of(one.consumer), WorkerProcess(owner_of(one.consumer), None))
        process.process = process.process or one.process
        process.consumers.append(one)
    return sorted(workers.values(), key=_place)


def find_worker(identity: str) -> Steps[WorkerProcess | None]:
    """Return the worker with this id, or whose id alone begins with it; None if there is none."""
    found = [one for one in (yield from every_worker()) if identity and one.id.startswith(identity)]
    return found[0] if len(found) == 1 else next((one for one in found if one.id == identity), None)


def instruct(one: WorkerProcess, instruction: Instruction) -> Steps[bool]:
    """Tell a worker what to do, which it learns with its next heartbeat; return whether it is still there.

    The other homes of its queues are told too: they may be all that it serves by then.
    """
    consumers = {each.home: each for each in one.consumers if each.follows}
    queues = {each.queue: each.consumer for each in consumers.values()}
    now, *layouts = yield [ops.server_time(), *(ops.layout(QueueKeys(name)) for name in queues)]
    told = yield [ops.instruct(QueueKeys(home), each.consumer, instruction, now) for home, each in consumers.items()]
    others = [
        ops.one(ops.instruct(QueueKeys(home), consumer, instruction, now, anyway=True))
        for (name, consumer), layout in zip(queues.items(), layouts, strict=True)
        for home in layout.every(name)
        if home not in consumers
    ]
    if others and any(told):
        yield Together(others)  # one that is away is not told
    return any(told)


def _place(one: WorkerProcess) -> tuple[bool, str, int, str]:
    return one.process is None, one.process.host if one.process else "", one.process.pid if one.process else 0, one.id


def _read(queues: Sequence[str]) -> Steps[list[Consuming]]:
    """Read the consumers of these queues, those of their homes too."""
    layouts = yield [ops.layout(QueueKeys(name)) for name in queues]
    homes = [QueueKeys(home) for name, layout in zip(queues, layouts, strict=True) for home in layout.every(name)]
    answers = yield [op for keys in homes for op in (ops.members(keys.consumers), ops.described(keys))]
    there = [
        (keys, sorted(names)[:_CONSUMERS], dict(zip(texts[::2], texts[1::2], strict=True)))
        for keys, names, texts in zip(homes, answers[::2], answers[1::2], strict=True)
        if names
    ]
    if not there:
        return []
    facts = yield [op for keys, names, _ in there for op in _facts(keys, names)]
    found, answered = list[Consuming](), iter(facts)
    for keys, names, texts in there:
        found += [
            worker.read(keys.logical, one, texts.get(one.encode()), next(answered), next(answered), keys.queue)
            for one in names
        ]
    return found


def _facts(keys: QueueKeys, consumers: Sequence[str]) -> list[Op[Any]]:
    """Return the ops that read when the lease of each consumer ends, and how many messages it holds."""
    return [op for one in consumers for op in (ops.lease_end(keys, one), ops.held_count(keys, one))]
