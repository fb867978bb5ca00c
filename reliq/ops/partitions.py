"""Ops that read and write the partitions of a queue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reliq.model.keys import QueueKeys
from reliq.model.partitions import BUCKETS, Layout, read_layout
from reliq.ops import signatures
from reliq.ops.browse import waiting_element
from reliq.ops.coming import REMEMBERED
from reliq.ops.request import Op, milliseconds, optional_text, scripted
from reliq.ops.schema import Config

_DIGITS = BUCKETS // 4  #: of the field `homes`, before the version
HOMEWARD = b"~"  #: begins the turn of a message that a monitor takes to the home of its key
_REFUSED = "\x7f"  #: before the counter, in the place of an id: no id begins with it


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a producer learns about a queue that it announces."""

    durability: str | None  #: the default of sends; None = in memory
    layout: str | None  #: of its partitions; None = it has only one, or this is not the first


def introduction(keys: QueueKeys) -> Op[Introduction]:
    """Read what a producer has to know before it sends."""
    command = ("HMGET", keys.config, Config.DURABILITY, Config.PARTITIONS)
    return Op(command, lambda reply: Introduction(optional_text(reply[0]), optional_text(reply[1])))


def layout(keys: QueueKeys) -> Op[Layout]:
    """Read the layout of the queue's homes."""
    return Op(stored_layout(keys).command, lambda reply: read_layout(optional_text(reply)))


def stored_layout(keys: QueueKeys) -> Op[str | None]:
    """Read the same as it is stored; None = the queue has one home."""
    return Op(("HGET", keys.config, Config.PARTITIONS), optional_text)


def replace_layout(
    keys: QueueKeys, before: str | None, after: str, *, alone: bool = False, counts: Mapping[str, int] | None = None
) -> Op[bool]:
    """Store a layout in the place of another, unless that was changed meanwhile; return whether it is stored.

    `alone`: the queue has no other partitions any more. `counts`: what is added to counters.
    """
    added = [part for pair in (counts or {}).items() for part in pair]
    call = signatures.replace_layout(keys, before=before or "", after=after, alone=alone, counts=added)
    return scripted(call, bool)


def drop_counters(keys: QueueKeys, counts: Mapping[str, str]) -> Op[int]:
    """Delete the counters of a partition that takes no messages, if they are these, and the state of its limits."""
    records = [signatures.drop_counters_count(name=name, value=value) for name, value in counts.items()]
    return scripted(signatures.drop_counters(keys, counts=records))


@dataclass(frozen=True, slots=True)
class OwnedBuckets:
    """The buckets of keys with their home in one partition, as its config has them (shared/homes.lua)."""

    buckets: str  #: a bitmap
    version: int  #: of the layout
    arriving: str = ""  #: a bitmap of those that came with the change under way; empty: none does

    def __str__(self) -> str:
        return f"{self.buckets}{self.version}" + (f" {self.arriving}" if self.arriving else "")


def take_in(keys: QueueKeys, owned: OwnedBuckets, retired: bool) -> Op[int]:
    """Set which keys have their home in a partition, and whether it takes no new messages any more.

    A partition that knows a later layout keeps that; the answer is its version, else 0.
    """
    return scripted(signatures.take_in(keys, homes=str(owned), retired=int(retired)))


def known_version(keys: QueueKeys) -> Op[int]:
    """Read the version of the layout that a partition knows; 0: none."""
    return Op(("HGET", keys.config, Config.HOMES), lambda reply: int(reply[_DIGITS:].split()[0]) if reply else 0)


def first_of(keys: QueueKeys, digest: str) -> Op[bytes]:
    """Read what a home knows of the first message with a dedup key, its id and the digest of its body; or b""."""
    return Op(("GET", keys.dedup_of(digest)), lambda reply: reply or b"")


def dedup_until(keys: QueueKeys) -> Op[int]:
    """Read until when a partition has deduplication keys, in ms, at most a minute more; 0: it had none."""
    return Op(("HGET", keys.config, Config.DEDUP_UNTIL), lambda reply: int(reply or 0))


@dataclass(frozen=True, slots=True)
class Serving:
    """Who serves the partitions of a queue."""

    layout: Layout
    owners: list[str]  #: worker processes


def serve(keys: QueueKeys, owner: str, seconds: float) -> Op[Serving]:
    """Note that a worker process serves the queue, for so many seconds; 0: it does not any more."""
    silent = milliseconds(seconds)
    call = signatures.serve(keys, owner=owner, silent=silent)
    return scripted(call, _read_served)


def _read_served(reply: list[bytes]) -> Serving:
    layout, *owners = (one.decode() for one in reply)
    return Serving(read_layout(layout), sorted(owners))


def ready_counts(queues: Sequence[QueueKeys]) -> list[Op[int]]:
    """Read how long the list of ready messages of each queue is."""
    return [Op(("LLEN", keys.messages)) for keys in queues]


@dataclass(frozen=True, slots=True)
class Stray:
    """A message that no other one of its partition holds back.

    Either a monitor takes it to the home of its key, or it waits here until the former home of its key is empty.
    """

    member: bytes  #: of `waiting`

    @property
    def line(self) -> bytes:
        """How it begins: its group and its turn."""
        return self.member[: -len(self.element)]

    @property
    def element(self) -> bytes:
        return waiting_element(self.member)

    @property
    def goes_home(self) -> bool:
        """Whether a monitor takes it to the home of its key."""
        return self.member[16:17] == HOMEWARD

    @property
    def group(self) -> str:
        return self.member[:16].decode()

    @property
    def behind_line(self) -> bytes:
        """Where to go on behind the line of its key."""
        return self.member[:16] + b"\xff"


def strays(keys: QueueKeys, start: bytes, most: int) -> Op[tuple[bytes, list[Stray]]]:
    """Read such messages from this place in the order of lines on, and where to go on: empty at the end."""
    call = signatures.strays(keys, start=start, most=most)
    return scripted(call, lambda reply: (reply[0], [Stray(one) for one in reply[1:]]))


def has_key(keys: QueueKeys, group: str) -> list[Op[bool]]:
    """Read whether messages of a key are in a partition: some that hold it, or wait in its line and are not away."""
    line = ("ZRANGEBYLEX", keys.waiting, f"[{group}0", f"({group}:", "LIMIT", 0, 1)
    return [*(Op(("HEXISTS", keys.active, field), bool) for field in (group, f"#{group}")), Op(line, bool)]


def release_lines(keys: QueueKeys, groups: Sequence[str], version: int) -> Op[int]:
    """Let the first message of the lines of these keys be ready, where no message holds the key.

    `version`: of the layout by which their former home has none; a partition that knows a later one does nothing.
    """
    return scripted(signatures.release_lines(keys, version=version, groups=groups))


def send_home(keys: QueueKeys, strays: Sequence[Stray]) -> Op[int]:
    """Remove messages that were enqueued in the home of their key."""
    return scripted(signatures.send_home(keys, members=[one.member for one in strays]))


def stay(keys: QueueKeys, strays: Sequence[Stray], version: int) -> Op[int]:
    """Let messages stay whose home is this partition again; `version`: as of `release_lines`."""
    return scripted(signatures.stay(keys, version=version, members=[one.member for one in strays]))


def withdraw(keys: QueueKeys, strays: Sequence[Stray], counter: str, call: str | None = None) -> Op[int]:
    """Remove messages that the home of their key refuses; `counter` counts them. `call`: as of `cancel`."""
    return scripted(signatures.withdraw(keys, counter=counter, members=[one.member for one in strays], call=call))


def refuse(mark: str, counter: str) -> tuple[Op[Any], Op[str]]:
    """Let no message enter under this mark of a `Coming`; the last reply: the refusal's counter, empty: it is in."""
    store: Op[Any] = Op(("SET", mark, f"{_REFUSED}{counter}", "NX", "PX", milliseconds(REMEMBERED)))
    return store, Op(("GET", mark), lambda reply: refused_for(reply.decode()))


def come_under(mark: str) -> Op[str | None]:
    """Read the first id under the mark of a `Coming`, or its refusal; None: nothing has come."""
    return Op(("GET", mark), optional_text)


def refused_for(first: str) -> str:
    """Return the counter for which a message was refused, empty if it was not; `first`: the first id under its mark."""
    return first[1:] if first.startswith(_REFUSED) else ""


def held_keys(keys: QueueKeys, cursor: bytes | str = "0") -> Op[tuple[bytes, int]]:
    """Count, from a cursor on, the keys that messages hold here and that have their home elsewhere."""
    return scripted(signatures.held_keys(keys, cursor=cursor), _read_held)


def _read_held(reply: list[Any]) -> tuple[bytes, int]:
    return reply[0], reply[1]
