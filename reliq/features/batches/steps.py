"""The steps of batches: open, send, close, and what follows when all messages have ended."""

from collections.abc import Collection, Mapping, Sequence

from reliq import ops
from reliq.contract.values import check_id
from reliq.errors import InvalidSetting, QueueFull, RedisUnavailable
from reliq.features.batches import ops as own
from reliq.features.batches.model import (
    ABANDONED,
    CLOSED,
    OPEN,
    BatchProgress,
    Counts,
    End,
    Target,
    checked_end,
    decode_end,
    new_batch_id,
)
from reliq.model.keys import JobKeys, QueueKeys, batch_record
from reliq.model.outgoing import NewMessage
from reliq.model.partitions import Layout
from reliq.ops import JobState, Steps
from reliq.ops.schema import Batch as Field
from reliq.protocol.features import JobEnd

MOST = 1000  #: batches that one turn of a program without monitors looks at
_ENDED = (CLOSED, ABANDONED)
_PRODUCER = "batch-"  #: and the id: the producer of the message at the end
_OPEN_FOR_MS = 7 * 86_400_000  #: after so long the producer of an open batch is taken for dead


class BatchSteps:
    """One batch, as its producer knows it."""

    def __init__(
        self, on_done: Target | None, on_dead: Target | None, versions: Mapping[str, int], parent: str = ""
    ) -> None:
        """`versions`: of the bodies that the application sends, by queue."""
        self.id = new_batch_id()
        self.is_open = False
        self._was_open = False
        self._done = checked_end(on_done, "on_done", versions)
        self._dead = checked_end(on_dead, "on_dead", versions)
        self.versions = versions
        self._parent = parent
        self._queues: set[str] = set()

    def open(self) -> Steps[None]:
        """Create the batch in Redis; raises InvalidSetting if its parent is closed, or if it was open before."""
        if self._was_open:
            raise InvalidSetting(f"batch {self.id} has one `with` block: make a new one with app.batch()")
        if not (yield own.batch_open(self.id, {Field.DONE: self._done, Field.DEAD: self._dead}, self._parent)):
            raise InvalidSetting(f"batch {self._parent} is closed: open batches in it before its block ends")
        self.is_open = self._was_open = True

    def enlist(self, queue: str) -> Steps[None]:
        """Note a queue before the first message is sent to it; raises InvalidSetting if the batch is not open."""
        if not self.is_open:
            raise InvalidSetting(f"batch {self.id} is not open: send its messages in its `with` block")
        if queue in self._queues:
            return
        if not (yield own.batch_enlist(self.id, queue)):
            raise InvalidSetting(
                f"Redis does not know batch {self.id} any more: it was deleted, or Redis has lost its latest writes; "
                "send the messages in a new batch"
            )
        self._queues.add(queue)

    def marked(self, messages: Sequence[NewMessage]) -> list[NewMessage]:
        """Return the messages as those of this batch."""
        return [message.of_batch(self.id) for message in messages]

    def close(self, abandon: bool) -> Steps[None]:
        """End the sending. `abandon`: nothing is sent when the messages have ended."""
        self.is_open = False
        yield own.batch_close(self.id, ABANDONED if abandon else CLOSED)


def _of_job(queue: str, job: str) -> Steps[str]:
    """Open a batch of the messages of a staged job; return its id."""
    batch = BatchSteps((queue, {"job": job}), None, {})
    yield from batch.open()
    return batch.id


def close_with(batch: str, home: JobKeys, job: str, run: str, queues: Collection[str]) -> Steps[None]:
    """Close a batch that a staged job sends, before the job is committed: it ends after the job has."""
    for queue in queues:
        yield own.batch_enlist(batch, queue)
    yield own.batch_change(batch, Field.JOB, f"{home.place} {job} {run}")
    yield own.batch_close(batch, CLOSED)


def _abandon(batch: str) -> Steps[None]:
    """Close a batch of which nothing is sent."""
    yield own.batch_close(batch, ABANDONED)


JOB_END = JobEnd(_of_job, close_with, _abandon)


def _job_state(fields: dict[str, bytes]) -> Steps[str]:
    """Return the state of the staged job that sends the batch; empty if there is none, or it is forgotten."""
    if Field.JOB not in fields:
        return ""
    place, name, run = fields[Field.JOB].decode().split(" ")
    job: ops.JobRecord = yield ops.job_record(JobKeys(place), name)
    return job.state if job.run == run else ""


def progress(batch: str) -> Steps[BatchProgress | None]:
    """Return the progress of a batch; None if it has ended, or never existed."""
    fields = yield own.batch_fields(check_id(batch))
    if not fields:
        return None
    counts = yield from _counts(batch, fields)
    return BatchProgress(
        batch,
        fields[Field.STATE].decode(),
        int(fields[Field.OPENED]),
        counts.sent,
        counts.handled,
        counts.dead,
        counts.cancelled,
        int(fields.get(Field.CHILDREN, 0)),
    )


def open_batches(limit: int) -> Steps[list[BatchProgress]]:
    """Return the batches that have not ended, oldest first."""
    found = []
    for batch in (yield own.batch_ids(limit)):
        one = yield from progress(batch)
        if one is not None:
            found.append(one)
    return found


def _homes(fields: dict[str, bytes]) -> Steps[list[QueueKeys]]:
    """Return the queues of a batch, each with all of its homes."""
    queues = own.queues_in(fields)  # homes, too, where their queue was deleted
    layouts = (yield [ops.layout(keys) for keys in queues]) if queues else []
    return homes_of(queues, dict(zip((keys.queue for keys in queues), layouts, strict=True)))


def homes_of(queues: Sequence[QueueKeys], layouts: Mapping[str, Layout]) -> list[QueueKeys]:
    """Return the homes of these queues."""
    names = [name for keys in queues for name in layouts[keys.queue].every(keys.queue)]
    return [QueueKeys(name) for name in dict.fromkeys(names)]


def _counts(batch: str, fields: dict[str, bytes]) -> Steps[Counts]:
    queues = yield from _homes(fields)
    counts = (yield [own.batch_counts(keys, batch) for keys in queues]) if queues else []
    return sum(counts, Counts())


def _of_children(fields: dict[str, bytes]) -> Counts:
    """Return the counts of the ended batches of a batch."""
    handled, dead, cancelled = (
        int(fields.get(name, 0)) for name in (Field.CHILDREN_HANDLED, Field.CHILDREN_DEAD, Field.CHILDREN_CANCELLED)
    )
    return Counts(0, handled + dead + cancelled, dead, cancelled)


def waits(fields: dict[str, bytes], now: int) -> bool:
    """Whether a batch with this record cannot end yet: its producer adds messages, or it waits for other batches.

    `now`: ms of the server's clock.
    """
    if not fields:
        return False
    is_old = now - int(fields[Field.OPENED]) > _OPEN_FOR_MS
    return (fields[Field.STATE].decode() not in _ENDED and not is_old) or int(fields.get(Field.CHILDREN, 0)) > 0


def end(batch: str) -> Steps[bool]:
    """Do what follows if all messages of a batch have ended; return whether they have. For monitors; safe to repeat."""
    now, fields = yield [ops.server_time(), own.batch_fields(batch)]
    if not fields:
        yield own.batch_drop(batch)
        return False
    state = fields[Field.STATE].decode()
    if state == OPEN and now - int(fields[Field.OPENED]) > _OPEN_FOR_MS:
        yield own.batch_close(batch, ABANDONED)
        return False
    if state not in _ENDED or int(fields.get(Field.CHILDREN, 0)) > 0:
        return False
    job = yield from _job_state(fields)
    if job in (JobState.OPEN, JobState.COMMITTED):  # not completely visible yet
        return False
    ending = fields[Field.ENDING] if Field.ENDING in fields else (yield from _begin_end(batch, fields))
    if ending is None:
        return False
    sent, dead, cancelled = map(int, ending.split())
    total = Counts(0, sent, dead, cancelled)
    target = fields[Field.DEAD] if dead and fields[Field.DEAD] else fields[Field.DONE]
    was_aborted = Field.JOB in fields and not sent and job != JobState.DONE
    if target and state == CLOSED and not was_aborted and Field.SENT not in fields:
        yield from _send(batch, decode_end(target), total)
        yield own.batch_sent(batch)  # what follows may fail for longer than the producer of the message is remembered
    queues = yield from _homes(fields)
    if queues:
        yield [own.batch_forget(keys, batch) for keys in queues]
    yield own.batch_end(batch, fields[Field.PARENT].decode(), total)
    return True


def _begin_end(batch: str, fields: dict[str, bytes]) -> Steps[bytes | None]:
    """Note and return the counts with which a batch ends; None: it has open messages, or has ended."""
    counts = yield from _counts(batch, fields)
    # A handler in one queue may send to another one that was read before: two equal looks are one instant.
    if counts.open or counts != (yield from _counts(batch, fields)):
        return None
    counts += _of_children(fields)
    return (yield own.batch_ending(batch, b"%d %d %d" % (counts.sent, counts.dead, counts.cancelled)))  # type: ignore[no-any-return]


def end_all() -> Steps[bool]:
    """Do what a monitor does for batches; return whether one of them had ended."""
    some = False
    for batch in (yield own.batch_ids(MOST)):
        some = (yield from end(batch)) or some
    return some


def _send(batch: str, message: End, total: Counts) -> Steps[None]:
    """Send the message at the end, once: the batch is its producer, and this its first call."""
    counts = {
        "batch": batch,
        "batch-handled": str(total.handled),
        "batch-dead": str(total.dead),
        "batch-cancelled": str(total.cancelled),
    }
    new = NewMessage(message.body, id=message.id, headers={**message.headers, **counts})
    keys = QueueKeys(message.queue)
    element = new.element((yield ops.server_time()))  # the clock of the monitor may be wrong
    answer = (yield [ops.announce(keys.queue), ops.enqueue(keys, [element], (), _PRODUCER + batch, 1)])[1]
    if answer.status == "full":
        raise QueueFull(f"queue {message.queue!r} is full: the message at the end of batch {batch} waits")


def sending(producers: Collection[bytes]) -> Steps[Collection[bytes]]:
    """Return those of these producers that are batches which have not ended: a monitor may send their message again."""
    batches = [name for name in producers if name.startswith(_PRODUCER.encode())]
    try:
        records = [batch_record(one.decode()[len(_PRODUCER) :]) for one in batches]
        there = (yield ops.existing(records)) if records else ()
    except RedisUnavailable:  # the records are away; the producers are not
        return batches
    return [batches[place - 1] for place in there]
