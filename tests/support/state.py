"""The whole state of a queue as plain values: put it there, run one step, compare.

Elements are written as short names: "a" is the first push of message a, "a2" its second, and so on. Real elements
stand for them in Redis, so that scripts which look into an element find what they expect.
"""

import re
from typing import Any

import msgspec
import redis

from reliq.model.dead_letter import letter_field
from reliq.model.element import Envelope, Extra, group_of
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Op, Transaction
from reliq.ops.held import Hold
from reliq.transport.store import Store

KEYS = QueueKeys("q")
HOUR = 3_600_000


def element(name: str, **changes: Any) -> bytes:
    """The element that a name stands for: letters are its id, digits its nonce."""
    named = re.fullmatch(r"([a-z-]+)(\d*)", name)
    assert named, f"{name!r} is no name of an element: letters and then digits"
    identity, nonce = named.groups()
    fields = {
        "version": 1,
        "id": identity,
        "nonce": int(nonce or 1),
        "deliveries": 0,
        "failures": 0,
        "redelivered": False,
        "enqueued_at": 1_700_000_000_000,
        "headers": {},
        "body": identity.encode(),
        **changes,
    }
    return msgspec.msgpack.encode(Envelope(**fields))


def keyed(name: str, key: str, deliveries: int = 0, **extra: Any) -> bytes:
    """An element with an order key."""
    return element(name, deliveries=deliveries, extra=Extra(key=key, group=group_of(key), **extra))


def elements(*names: str) -> list[bytes]:
    return [element(name) for name in names]


def hold(name: str) -> Hold:
    """The hold of consumer w on the message that a name stands for."""
    return Hold(KEYS, "w", Message.decode("q", element(name)), 0)


def name_of(raw: bytes) -> str:
    try:
        envelope = msgspec.msgpack.decode(raw, type=Envelope)
    except msgspec.MsgspecError:
        return raw.decode("latin-1")
    return envelope.id + (str(envelope.nonce) if envelope.nonce != 1 else "")


class World:
    """One queue on a real server."""

    def __init__(self, url: str) -> None:
        self.redis: Any = redis.Redis.from_url(url)  # its replies are what the server sends
        self.store = Store(url)
        seconds, micros = self.redis.time()
        self.now = seconds * 1000 + micros // 1000

    def run(self, op: Op[Any] | Transaction) -> Any:
        return self.store.call(op)

    def given(
        self,
        messages: str = "",
        processing: dict[str, str] | None = None,
        leases: dict[str, int] | None = None,
        delayed: dict[str, int] | None = None,
        dead: dict[str, int] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        """Lists are names separated by blanks, head first; leases and scores are ms from now."""
        if messages:
            self.redis.rpush(KEYS.messages, *elements(*messages.split()))
        for consumer, held in (processing or {}).items():
            self.redis.sadd(KEYS.consumers, consumer)
            if held:
                self.redis.rpush(KEYS.processing(consumer), *elements(*held.split()))
        for consumer, ms in (leases or {}).items():
            self.redis.sadd(KEYS.consumers, consumer)
            self.redis.set(KEYS.lease(consumer), self.now + ms)
        for key, scores in ((KEYS.delayed, delayed), (KEYS.dead, dead)):
            for name, ms in (scores or {}).items():
                self.redis.zadd(key, {element(name): self.now + ms})
                identity = name.rstrip("0123456789")
                field = letter_field(identity) if key == KEYS.dead else identity
                self.redis.hset(KEYS.index, field, self.now + ms)
        if config:
            self.redis.hset(KEYS.config, mapping=config)

    def state(self) -> dict[str, Any]:
        """Everything the queue has in Redis; what is empty is left out. A lease is "alive" or "over"."""
        found: dict[str, Any] = {}
        prefix = "reliq:{q}:"
        for key in sorted(key.decode() for key in self.redis.keys(prefix + "*")):
            short = key.removeprefix(prefix)
            kind = self.redis.type(key)
            if kind == b"list":
                found[short] = " ".join(name_of(one) for one in self.redis.lrange(key, 0, -1))
            elif short == "waiting":  # behind 16 characters of the group and 16 of the turn
                found[short] = " ".join(name_of(one[32:]) for one in self.redis.zrange(key, 0, -1))
            elif short == "receipts":  # behind 16 characters of the turn; `received` has the same messages
                found[short] = " ".join(sorted(name_of(one[16:]) for one in self.redis.hvals(key)))
            elif short == "received":
                continue
            elif short == "rounds":
                scores = self.redis.zrange(key, 0, -1, withscores=True)
                found[short] = {one.decode(): int(score) for one, score in scores}
            elif kind == b"zset":
                found[short] = " ".join(name_of(one) for one in self.redis.zrange(key, 0, -1))
            elif kind == b"set":
                found[short] = {one.decode() for one in self.redis.smembers(key)}
            elif short.startswith("lease:"):
                found[short] = "alive" if int(self.redis.get(key)) > self.now else "over"
            elif short == "index":
                found[short] = {one.decode() for one in self.redis.hkeys(key)}
            elif short == "counters":
                found[short] = {name.decode(): int(count) for name, count in self.redis.hgetall(key).items()}
            elif kind == b"hash":
                found[short] = {
                    name.decode(): name_of(value) if name == b"element" else value.decode()
                    for name, value in self.redis.hgetall(key).items()
                }
            else:
                found[short] = self.redis.get(key)
        return found

    def fill(self) -> None:
        """Bring the server over its maxmemory: from now on it refuses what could need more."""
        self.redis.config_set("maxmemory", max(1, self.redis.info("memory")["used_memory"] - 100_000))

    def close(self) -> None:
        self.redis.config_set("maxmemory", 0)
        self.store.close()
        self.redis.close()
