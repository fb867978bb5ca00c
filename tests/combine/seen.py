"""What a Redis has: every key by SCAN, those of a queue decoded, all partitions together."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from reliq.model.element import BLANK
from reliq.model.keys import DELETED, FLOWS, TOPICS, QueueKeys, logical_name
from reliq.model.message import Message
from tests.reference import model


@dataclass
class SeenQueue:
    """One queue."""

    places: dict[str, list[tuple[str, Message]]] = field(default_factory=dict)  #: id: each place it is in
    counters: Counter[str] = field(default_factory=Counter)
    bodies: list[str] = field(default_factory=list)  #: references of the bodies that are apart
    indexed: list[str] = field(default_factory=list)
    followed: list[str] = field(default_factory=list)
    active: dict[str, str] = field(default_factory=dict)
    prepared: list[str] = field(default_factory=list)
    blanks: int = 0

    def put(self, place: str, message: Message) -> None:
        self.places.setdefault(message.id, []).append((place, message))


@dataclass
class Seen:
    """All queues, and the keys that are of no queue."""

    queues: dict[str, SeenQueue] = field(default_factory=dict)
    flows: set[str] = field(default_factory=set)  #: ids of those that have not ended
    keys: dict[str, float] = field(default_factory=dict)  #: each key of the server: seconds until it expires, or -1


_LISTS = ("messages", "high", "low", "next_round")
_ZSETS = {"delayed": model.DELAYED, "dead": model.DEAD}


def look(client: Any) -> Seen:
    """Read everything; nothing else works on the server meanwhile."""
    seen = Seen()
    names = sorted(client.scan_iter(count=1000))
    pipe = client.pipeline(transaction=False)
    for name in names:
        pipe.pttl(name)
    for name, ttl in zip(names, pipe.execute() if names else [], strict=True):
        key = name.decode()
        seen.keys[key] = ttl / 1000 if ttl > 0 else -1.0
        tag, _, short = key.removeprefix("reliq:{").partition("}:")
        if key.startswith("reliq:{") and not tag.startswith("@") and tag != TOPICS:
            queue = seen.queues.setdefault(logical_name(tag), SeenQueue())
            _read(client, queue, QueueKeys(tag), short, key)
    seen.flows = {one.decode() for one in client.zrange(FLOWS, 0, -1)}
    return seen


def _read(client: Any, queue: SeenQueue, keys: QueueKeys, short: str, key: str) -> None:
    if short in _LISTS or short.startswith("processing:"):
        for element in client.lrange(key, 0, -1):
            if element == BLANK:
                queue.blanks += 1
                continue
            queue.put(model.READY if short in _LISTS else model.PROCESSING, Message.decode(keys.logical, element))
    elif short in _ZSETS:
        for element in client.zrange(key, 0, -1):
            queue.put(_ZSETS[short], Message.decode(keys.logical, element))
    elif short == "waiting":  # behind 16 characters of the group and 16 of the turn
        for entry in client.zrange(key, 0, -1):
            queue.put(model.WAITING, Message.decode(keys.logical, entry[32:]))
    elif short == "parked":  # behind a line about the wait
        for record in client.hvals(key):
            queue.put(model.PARKED, Message.decode(keys.logical, record.partition(b"\n")[2]))
    elif short == "receipts":  # behind 16 characters of the turn
        for record in client.hvals(key):
            queue.put(model.PROCESSING, Message.decode(keys.logical, record[16:]))
    elif short.startswith("half:"):
        fields = client.hgetall(key)
        if fields.get(b"state") == b"prepared":
            queue.put(model.PREPARED, Message.decode(keys.logical, fields[b"element"]))
    elif short == "counters":
        queue.counters.update({name.decode(): int(value) for name, value in client.hgetall(key).items()})
    elif short == "bodies":
        queue.bodies += [name.hex() for name in client.hkeys(key)]
    elif short == "index":
        queue.indexed += [name.decode().lstrip() for name in client.hkeys(key)]  # a dead letter's: behind a blank
    elif short == "followed":
        queue.followed += [name.decode() for name in client.hkeys(key)]
    elif short == "active":
        queue.active |= {name.decode(): value.decode() for name, value in client.hgetall(key).items()}
    elif short == "prepared":
        queue.prepared += [name.decode() for name in client.zrange(key, 0, -1)]


_IN_LISTS = """
local found, lists = {}, {messages = true, high = true, low = true, next_round = true, processing = true}
local now = redis.call('TIME')[1] * 1000
for _, key in ipairs(redis.call('KEYS', 'reliq:{*')) do
  local tag, short = key:match('{(.*)}:([a-z_]+)')
  local full_at = lists[short] and redis.call('HGET', 'reliq:{' .. tag .. '}:flow', 'full_at') or 0
  if lists[short] and (short == 'processing' or full_at - now < 60000) then
    for _, element in ipairs(redis.call('LRANGE', key, 0, -1)) do found[#found + 1] = element end
  end
end
return found
"""


def is_idle(client: Any) -> bool:
    """Whether no message may start or is in processing, at one instant: a message that moves meanwhile is seen.

    None of a queue may start whose rate is used up for a minute. The places of cancelled messages are gone, too.
    """
    return not client.eval(_IN_LISTS, 0)


def let_pass(client: Any, seconds: float) -> None:
    """Let time pass for all that waits: deadlines of messages, limits and windows are so much nearer."""
    ms = seconds * 1000
    for name in list(client.scan_iter(count=1000)):
        short = name.decode().partition("}:")[2]
        if name == DELETED.encode():
            for queue in client.hkeys(name):
                client.hincrby(name, queue, -int(ms))
        elif short == "delayed":
            for element, score in client.zrange(name, 0, -1, withscores=True):
                client.zadd(name, {element: score - ms})
                client.hset(name.replace(b":delayed", b":index"), Message.decode("q", element).id, repr(score - ms))
        elif short == "buckets":
            for member in client.zrange(name, 0, -1):
                client.zincrby(name, -ms, member)
        elif short == "waits":  # above zero: of messages that were brought, or taken elsewhere
            for member, at in client.zrangebyscore(name, 0, "inf", withscores=True):
                client.zadd(name, {member: at - ms})
        elif short == "flow":
            client.hdel(name, "held_until", "full_at")
            if client.hexists(name, "breaker_until"):
                client.hincrbyfloat(name, "breaker_until", -ms)
        elif short.startswith("lease:"):
            client.set(name, int(client.get(name)) - int(ms), keepttl=True)
        elif short.startswith(("dedup:", "burst:")) and 0 < client.pttl(name) <= ms:
            client.delete(name)
