"""API keys: created, listed, revoked and checked. Redis stores a hash of each secret, never the secret."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from reliq import ops
from reliq.contract.values import Duration, seconds
from reliq.errors import InvalidSetting
from reliq.ops import Steps
from reliq.protocol.clock import Clock

Scope = Literal["enqueue", "consume", "operate", "topics", "metrics"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
_PATTERN_LENGTH = 128
_PATTERN = re.compile(r"[A-Za-z0-9._@*-]+")
_NAME = re.compile(r"[ -~]{1,80}")
_NOBODY = hashlib.sha256(b"").hexdigest()  #: compared with the secret of an unknown key, for constant time


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What every key has, as stored in Redis: rights, and a time until which it is valid."""

    name: str
    scopes: tuple[str, ...]
    queues: tuple[str, ...]  #: patterns of queue names; `*` stands for any text
    created_at: int  #: ms since the epoch, the Redis server's clock
    expires_at: int = 0  #: as above; 0 = never

    def expired(self, now: int) -> bool:
        return 0 < self.expires_at <= now


class ApiKey(Key, frozen=True, kw_only=True):
    """An API key."""

    sha256: str  #: of its secret: 256 random bits, which no dictionary contains, so one round of hashing is enough
    rate: float = 0.0  #: requests per second over all processes of the service; 0 = not limited

    def covers(self, queue: str) -> bool:
        """Whether the key has rights to the queue; otherwise the queue does not exist for it."""
        return any(matches(one, queue) for one in self.queues)

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or (scope == "metrics" and "operate" in self.scopes)


def matches(pattern: str, name: str) -> bool:
    """Whether the name fits the pattern, in which `*` stands for any text.

    It needs no backtracking: matching each part between two stars as early as possible leaves the most for the rest.
    """
    first, *parts = pattern.split("*")
    if not parts:
        return name == pattern
    last = parts.pop()
    place, end = len(first), len(name) - len(last)
    if place > end or not name.startswith(first) or not name.endswith(last):
        return False
    for part in parts:
        found = name.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def check_key(name: str, scopes: Sequence[str], queues: Sequence[str], known: Collection[str] = SCOPES) -> None:
    """Raise InvalidSetting unless a new key may have this name, these scopes and these patterns of queue names.

    `known`: the scopes that a key may have.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidSetting(f"the name of a key is {name!r}: use 1 to 80 printable ASCII characters")
    for scope in scopes:
        if scope not in known:
            raise InvalidSetting(f"scope is {scope!r}: it is one of {', '.join(known)}")
    for pattern in queues:
        if len(pattern) > _PATTERN_LENGTH:
            raise InvalidSetting(
                f"a queue pattern has {len(pattern):,} characters: at most {_PATTERN_LENGTH} are allowed"
            )
        if _PATTERN.fullmatch(pattern) is None:
            raise InvalidSetting(f"queue pattern {pattern!r}: use a queue's name, in which * stands for any text")
    if not scopes or not queues:
        raise InvalidSetting("a key needs at least one scope and one queue pattern")


def lifetime(expires: Duration | None) -> float | None:
    """Return for how many seconds a new key is valid; None: for ever. Raises InvalidSetting if not 1 s to 100 years."""
    return None if expires is None else seconds(expires, "expires", shortest=1.0, longest=100 * 366 * 86_400.0)


def create(
    name: str, scopes: tuple[str, ...], queues: tuple[str, ...], expires: Duration | None, rate: float
) -> Steps[str]:
    """Create a key; return its text, `id.secret`, which cannot be shown again."""
    check_key(name, scopes, queues)
    valid_for = lifetime(expires)
    if not 0 <= rate <= 1e6:
        raise InvalidSetting(f"rate is {rate!r}: give requests a second, up to 1,000,000; 0 = not limited")
    identity, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    now = yield ops.server_time()
    key = ApiKey(
        name=name,
        sha256=hashlib.sha256(secret.encode()).hexdigest(),
        scopes=scopes,
        queues=queues,
        created_at=now,
        expires_at=0 if valid_for is None else now + round(valid_for * 1000),
        rate=rate,
    )
    yield ops.note_api_key()  # first: a key must never exist without this note
    yield ops.put_api_key(identity, msgspec.json.encode(key))
    return f"{identity}.{secret}"


def revoke(identity: str) -> Steps[bool]:
    """Revoke a key; return whether it existed."""
    existed: bool = yield ops.delete_api_key(identity)
    if existed and not (yield ops.key_existed()):  # a key that an earlier version has made
        yield ops.note_api_key()
    return existed


def read_all(clock: Clock | None = None) -> Steps[dict[str, ApiKey]]:
    """Read all keys by id, and the server's time, by which they expire. An unreadable key allows nothing."""
    texts = yield from (clock or Clock()).ask_with(ops.api_keys())
    nothing = ApiKey(name="unreadable", sha256="", scopes=(), queues=(), created_at=0, expires_at=1)
    keys: dict[str, ApiKey] = {}
    for identity, text in texts.items():
        try:
            keys[identity] = msgspec.json.decode(text, type=ApiKey)
        except msgspec.MsgspecError:
            keys[identity] = nothing
    return keys


def judged(keys: Mapping[str, ApiKey], text: str, now: int) -> tuple[str, ApiKey] | None:
    """Return the key with this id and secret, valid now, or None. A wrong id takes as much work as a right one."""
    identity, _, secret = text.partition(".")
    key = keys.get(identity)
    known = _NOBODY if key is None else key.sha256
    same = hmac.compare_digest(known, hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest())
    if key is None or not same or key.expired(now):
        return None
    return identity, key
