"""Ops of topics: publish, read and change the bindings, and what marks the queue of a broadcast's instance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from reliq.features.topics import signatures
from reliq.model.keys import TOPICS, QueueKeys
from reliq.ops.commands import read_hash
from reliq.ops.request import Op, milliseconds, optional_text, read_fields, readable, scripted
from reliq.ops.schema import Config, Topics

NO_HOMES: Mapping[int, tuple[int, bool]] = MappingProxyType({})

_DROP = "drop"
_DEAD_KEPT = 100  #: dead letters of the queue of an instance


@dataclass(frozen=True, slots=True)
class Published:
    """The reply of the publish script; `refuser`: the position of the full queue. `moved`: the positions of homes
    that are not the home of the message's key.
    """

    status: Literal["ok", "repeated", "full", "moved"]
    now: int
    length: int = 0
    max_length: int = 0
    refuser: int = 0
    unit: str = "messages"
    moved: Sequence[int] = ()
    held: Sequence[int] = ()  #: those of them that still have messages of the key


def publish(
    every: Sequence[QueueKeys],
    identity: str,
    element: bytes,
    delay: float,
    producer: str,
    sequence: int,
    homes: Mapping[int, tuple[int, bool]] = NO_HOMES,
) -> Op[Published]:
    """Enqueue one message in several queues, with equal bytes: an LREM searches the list of one queue only.

    `homes`: by the position of each home the version of the layout that is known, and whether the message
    waits there for its key, of which the former home still has messages.
    """
    call = signatures.publish(
        queues=map(signatures.publish_queue, every),
        producer=producer,
        sequence=sequence,
        id=identity,
        element=element,
        delay=milliseconds(delay),
        homes=[f"{place} {version} {int(held)}" for place, (version, held) in homes.items()],
    )
    return scripted(call, _read_published)


def _read_published(reply: Any) -> Published:
    if reply[0] == b"moved":
        return Published("moved", reply[1], moved=reply[2], held=reply[3])
    return Published(*map(readable, reply))


def bind(verb: Literal["bind", "unbind"], bindings: Sequence[str], call: str | None = None) -> Op[int]:
    """Add or remove bindings; the reply is how many changed. `call`: of `new_topics_call`."""
    return scripted(signatures.bind(topics=TOPICS, verb=verb, bindings=bindings, call=call))


def set_alternate(queue: str) -> Op[int]:
    """Set the queue for unroutable messages."""
    return scripted(signatures.bind(topics=TOPICS, verb=Topics.ALTERNATE, bindings=[queue]))


def unset_alternate() -> Op[int]:
    return bind("unbind", [Topics.ALTERNATE])


def unset_alternate_if(queue: str) -> Op[int]:
    """Unset the queue for unroutable messages if it is this one."""
    return scripted(signatures.bind(topics=TOPICS, verb="no_longer_alternate", bindings=[queue]))


def bindings_version() -> Op[str | None]:
    """Read the version of the bindings, which changes with them; None if there never were any."""
    return Op(("HGET", TOPICS, Topics.VERSION), optional_text)


def topics() -> Op[dict[str, str]]:
    """Read the bindings, each a field "queue pattern", and the fields of `schema.Topics`."""
    return read_hash(TOPICS)


def bound() -> Op[Mapping[str, str]]:
    """Read the bindings, each with its queue."""
    return Op(("HGETALL", TOPICS), lambda reply: {one: one.split(" ")[0] for one in read_fields(reply) if " " in one})


def alternates() -> Op[Mapping[str, str]]:
    """Read the queue for unroutable messages, by the name of its field; empty if there is none."""
    return Op(("HGET", TOPICS, Topics.ALTERNATE), lambda reply: {Topics.ALTERNATE: reply.decode()} if reply else {})


def unroutable() -> Op[int]:
    """Read the number of messages that matched no queue."""
    return Op(("HGET", TOPICS, Topics.UNROUTABLE), lambda reply: int(reply or 0))


def keep_for_broadcasts(keys: QueueKeys, most: int) -> Op[int]:
    """Set the policy of a running instance's queue: messages published while it has `most` are dropped."""
    policy: tuple[Any, ...] = (
        Config.MAX_LENGTH, most, Config.OVERFLOW, _DROP, Config.DEAD_MAX_COUNT, _DEAD_KEPT
    )  # fmt: skip
    return Op(("HSET", keys.config, *policy))


def is_for_broadcasts(keys: QueueKeys) -> Op[bool]:
    """Whether `keep_for_broadcasts` has set the queue's policy."""
    return Op(("HGET", keys.config, Config.OVERFLOW), lambda reply: reply == _DROP.encode())


def await_consumer(keys: QueueKeys, seconds: int) -> Op[int]:
    """Keep such a queue so long although it has no consumer yet; nothing if it had one."""
    return Op(("HSETNX", keys.config, Config.AWAITED, seconds))


def consumer_came(keys: QueueKeys) -> Op[int]:
    """Note that such a queue has its first consumer: it goes with the last one."""
    return Op(("HSET", keys.config, Config.AWAITED, 0))


def awaited(keys: QueueKeys) -> Op[int]:
    """Read for how many seconds such a queue stays without a consumer."""
    return Op(("HGET", keys.config, Config.AWAITED), lambda reply: int(reply or 0))
