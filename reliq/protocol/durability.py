"""Durability of a send: in memory, on the server's disk, or also on replicas, before the call returns.

WAIT and WAITAOF cover only the writes of their own connection, which after a reconnect has none, and of one server,
which after a failover is another. So one round trip on one connection asks whether this server knows the call, writes
something after it, and asks how many servers have that write.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from reliq import ops
from reliq.contract import values
from reliq.errors import DurabilityUnavailable, OutcomeUnknown, ReliqError, UnknownCommand
from reliq.model.keys import QueueKeys
from reliq.ops import Op, Steps
from reliq.ops.schema import Counter

_ENQUEUED = "enqueued"
#: How an OutcomeUnknown begins if the message is enqueued, but not as durably as requested.
UNCONFIRMED = f"{_ENQUEUED}, but "


@dataclass(frozen=True, slots=True)
class Durability:
    """Where a message must be stored before its send returns."""

    name: str
    disks: int = 0  #: 1 = fsynced by the server itself
    replicas: int = 0

    @property
    def waits(self) -> bool:
        return self.disks + self.replicas > 0

    def wait(self) -> Op[int]:
        """Answers how many have the writes of this connection: replicas, or for fsync servers."""
        within = values.DURABLE_WITHIN
        return ops.fsynced(within) if self.disks else ops.replicated(self.replicas, within)

    def reached(self, have: int) -> bool:
        return have >= self.disks + self.replicas


MEMORY = Durability("memory")
_FSYNC = Durability("fsync", disks=1)


def durability(value: object) -> Durability:
    """Read "memory", "fsync" or "replicas=N"; raises InvalidSetting."""
    name = values.durability(value)
    if name == MEMORY.name:
        return MEMORY
    return _FSYNC if name == _FSYNC.name else Durability(name, replicas=int(name.partition("=")[2]))


class Terms(NamedTuple):
    """What a caller demands of a send, of whatever messages."""

    wanted: Durability | None = None  #: None = the durability of the queue
    retries: int | None = None  #: the largest number of repetitions; None: as many as there is time for

    @classmethod
    def of(cls, sure: str | None, retries: int | None) -> "Terms":
        """Read the keywords of a call; raises InvalidSetting."""
        if sure is None and retries is None:
            return ANY
        return cls(None if sure is None else durability(sure), values.retries(retries))


ANY = Terms()


def check_possible(wanted: Durability, undone: str = "enqueued") -> Steps[None]:
    """Raise DurabilityUnavailable if the server has no WAITAOF or no append-only file.

    `undone`: what the call has not done yet.
    """
    if not wanted.disks:
        return
    try:
        yield ops.can_fsync()
    except ReliqError as error:  # one without a class of its own: the server has no append-only file
        if type(error) not in (ReliqError, UnknownCommand):
            raise
        raise DurabilityUnavailable(
            f'durability="fsync" needs Redis 7.2 or newer (WAITAOF) with appendonly yes; nothing was {undone}'
        ) from None


def confirm(keys: QueueKeys, wanted: Durability, producer: str, sequence: int, done: str = _ENQUEUED) -> Steps[None]:
    """Wait until an answered call has the wanted durability; raises OutcomeUnknown if that is not certain.

    `done`: what the call did with the message.
    """
    question: list[Op[Any]] = [
        ops.last_sequence(keys, producer),
        ops.count(keys, Counter.CONFIRMS),
        wanted.wait(),
    ]
    try:
        known, _, answer = yield question
    except ReliqError as error:
        raise OutcomeUnknown(f"{done}, but durability {wanted.name} could not be confirmed: {error}") from None
    if known is None or known < sequence:
        raise OutcomeUnknown(f"{done}, but the server that answers now does not know it; {wanted.name} is not reached")
    if not wanted.reached(answer):
        raise OutcomeUnknown(f"{done}, but durability {wanted.name} was not reached within {values.DURABLE_WITHIN:g} s")
