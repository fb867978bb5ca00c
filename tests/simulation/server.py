"""A real Redis on the simulation's clock: its scripts are the shipped ones, and each is told the time."""

import functools
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from redis.connection import UnixDomainSocketConnection

from reliq.embedded import EmbeddedRedis
from reliq.ops import Op, Request, Transaction, Watch
from reliq.transport.calls import read, to_repeat, unknown_in_transaction
from reliq.transport.replies import read_replies
from reliq.transport.resp import Command, commands_of, pack

_VIRTUAL = Path(__file__).with_name("virtual.lua").read_text(encoding="utf-8")
#: Hashes stay lists, which have an order, so that each run of a seed is the same.
_SETTINGS = ("--appendonly", "no", "--hash-max-ziplist-entries", "4096", "--hash-max-ziplist-value", "65536")

#: Lists and sorted sets of messages, leases, counters and partitions, as one text: before each part its length.
_DUMP = """
local parts = {}
local function add(part)
  parts[#parts + 1] = struct.pack('>I', #part)
  parts[#parts + 1] = part
end
local function add_all(key, items)
  add(key)
  add(tostring(#items))
  for _, item in ipairs(items) do add(item) end
end
add((redis.call('ZRANGE', 'simulation:expiring', 0, 0, 'WITHSCORES')[2]) or '')
for _, key in ipairs(redis.call('KEYS', 'reliq:{*')) do
  local kind = string.match(key, '}:([a-z_]+)')
  if kind == 'messages' or kind == 'high' or kind == 'low' or kind == 'next_round' or kind == 'processing' then
    add_all(key, redis.call('LRANGE', key, 0, -1))
  elseif kind == 'waiting' then
    add_all(key, redis.call('ZRANGE', key, 0, -1))
  elseif kind == 'delayed' or kind == 'dead' then
    add_all(key, redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'))
  elseif kind == 'receipts' then
    local received, parts = string.gsub(key, 'receipts$', 'received'), {}
    local fields = redis.call('HGETALL', key)
    for at = 1, #fields, 2 do
      parts[#parts + 1] = string.sub(fields[at + 1], 17)
      parts[#parts + 1] = redis.call('ZSCORE', received, fields[at]) or 'inf'
    end
    add_all(key, parts)
  elseif kind == 'parked' then
    add_all(key, redis.call('HVALS', key))
  elseif kind == 'half' then
    add_all(key, {redis.call('HGET', key, 'element') or nil})
  elseif kind == 'lease' then
    add_all(key, {redis.call('GET', key)})
  elseif kind == 'counters' then
    add_all(key, redis.call('HGETALL', key))
  elseif kind == 'config' and redis.call('HEXISTS', key, 'partitions') == 1 then
    add_all(key, {redis.call('HGET', key, 'partitions')})
  end
end
return table.concat(parts)
"""

_EXPIRE = """
for _, key in ipairs(redis.call('ZRANGEBYSCORE', 'simulation:expiring', '-inf', ARGV[1])) do
  if redis.call('PTTL', key) >= 0 then redis.call('DEL', key) end
  redis.call('ZREM', 'simulation:expiring', key)
end
"""

_BLOCKING = {"BLMOVE": "LMOVE", "BLPOP": "LPOP"}

Contents = dict[str, list[bytes]]  #: by key: the members of a list or sorted set, fields and values of a hash


@functools.cache
def _virtual(source: str) -> str:
    """Return a script on the simulation's clock."""
    return f"{_VIRTUAL}\n{source}"


@functools.cache
def _sha(source: str) -> str:
    return hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


class SimulatedRedis:
    """A server for one simulation after another. A context: leaving it stops the server."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="reliq-")
        self._path = str(Path(self._folder.name) / "redis.sock")
        self._server = EmbeddedRedis(self._folder.name, (*_SETTINGS, "--unixsocket", self._path))
        self._loaded: set[str] = set()
        self._free: list[Any] = []
        self.now = 0.0  #: seconds since the epoch, set by the simulation
        self._next_expiry = float("inf")  #: ms
        self._latest = b""
        self._dumped: bytes | None = None  #: what the latest request has left, if it was asked for with it

    def __enter__(self) -> Self:
        self._server.start()
        self._connection = self.connection()
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.disconnect()
        for one in self._free:
            one.disconnect()
        self._server.stop()
        self._folder.cleanup()

    def empty(self) -> None:
        """Begin a new simulation."""
        self._ask(("CONFIG", "SET", "maxmemory", 0), ("FLUSHALL",))
        self._latest, self._dumped, self._next_expiry = b"", None, float("inf")

    # --- requests ---

    def perform(
        self,
        request: Request,
        watching: Any = None,
        connections: Callable[[Command], bytes | None] = lambda command: None,
        *,
        looks: bool = False,
        lacks_first: bool = False,
    ) -> Any:
        """Carry out a request now; raises as a Connection. `watching`: the connection that has the WATCH.

        `connections`: answers the commands about them. `looks`: `contents` is called next; in the same round trip it
        costs less. `lacks_first`: the server does not know the first script of this transaction.
        """
        self._expire()
        commands = commands_of(request)
        ops = _ops_of(request)
        translated = [self._translated(command, ops.get(place)) for place, command in enumerate(commands)]
        if lacks_first:
            translated[1] = ("EVALSHA", "0" * 40, 0)
        if looks:
            translated.append(("EVALSHA", self._sha_of(_DUMP), 0))
        replies = self._exchange(translated, watching)
        if looks:
            self._dumped = replies.pop()
        for place, command in enumerate(commands):
            if command[0] == "TIME":
                replies[place] = self._time()
            elif (answer := connections(command)) is not None:
                replies[place] = answer
            elif command[0] == "SMEMBERS" and isinstance(replies[place], list):
                replies[place].sort()
            elif command[0] == "SSCAN" and isinstance(replies[place], list):
                replies[place][1].sort()
        if unknown_in_transaction(request, replies):
            raise to_repeat(request, replies)
        return read(request, replies)

    def watch(self) -> Any:
        """Return a connection of its own, for a WATCH."""
        return self._free.pop() if self._free else self.connection()

    def unwatch(self, connection: Any) -> None:
        """Give that connection back."""
        self._exchange([("UNWATCH",)], connection)
        self._free.append(connection)

    def _translated(self, command: Command, op: Op[Any] | None) -> Command:
        name = command[0]
        if name == "EVALSHA":
            assert op is not None
            assert op.script is not None
            return ("EVALSHA", self._sha_of(_virtual(op.script.source)), *command[2:], self.micros)
        if name == "EVAL":
            return ("EVAL", _virtual(command[1]), *command[2:], self.micros)
        if name in ("TIME", "CLIENT", "INFO"):
            return ("PING",)
        if name in _BLOCKING:
            return (_BLOCKING[name], *command[1:-1])
        return command

    @property
    def micros(self) -> int:
        return round(self.now * 1_000_000)

    def _time(self) -> list[bytes]:
        return [str(part).encode() for part in divmod(self.micros, 1_000_000)]

    def _expire(self) -> None:
        """Delete what has expired by the simulation's clock."""
        if self.now * 1000 >= self._next_expiry:
            self._run(_EXPIRE, int(self.now * 1000))
            self._next_expiry = float("inf")  # the next look at everything tells

    # --- everything ---

    def contents(self) -> Contents | None:
        """Return everything that is looked at; None if it is as it was the last time."""
        text: bytes = self._run(_DUMP) if self._dumped is None else self._dumped
        self._dumped = None
        if text == self._latest:
            return None
        self._latest = text
        parts, at = [], 0
        while at < len(text):
            end = at + 4 + int.from_bytes(text[at : at + 4], "big")
            parts.append(text[at + 4 : end])
            at = end
        self._next_expiry = float(parts[0] or "inf")
        found: Contents = {}
        place = 1
        while place < len(parts):
            count = int(parts[place + 1])
            found[parts[place].decode()] = parts[place + 2 : place + 2 + count]
            place += 2 + count
        return found

    def saved(self) -> list[tuple[bytes, int, bytes]]:
        """Return all keys, as a server saves them: key, ms to live, value."""
        (keys,) = self._ask(("KEYS", "*"))
        lives = self._ask(*(("PTTL", key) for key in keys))
        values = self._ask(*(("DUMP", key) for key in keys))
        return list(zip(keys, lives, values, strict=True))

    def load(self, saved: list[tuple[bytes, int, bytes]]) -> None:
        """Be a server that was restarted with this state."""
        self._ask(("FLUSHDB",), *(("RESTORE", key, max(0, life), value) for key, life, value in saved))
        self._latest = b""

    def fill(self, full: bool) -> None:
        """Refuse what needs memory, or accept it again."""
        self._ask(("CONFIG", "SET", "maxmemory", 1 if full else 0))

    def fields(self, key: str) -> dict[bytes, bytes]:
        """Return a hash."""
        (found,) = self._ask(("HGETALL", key))
        return dict(zip(found[::2], found[1::2], strict=True))

    def members(self, key: str) -> list[bytes]:
        """Return the members of a sorted set."""
        (found,) = self._ask(("ZRANGE", key, 0, -1))
        return list(found)

    def value(self, key: str) -> bytes | None:
        """Return a string."""
        found: bytes | None = self._ask(("GET", key))[0]
        return found

    def score(self, key: str, member: str) -> bytes | None:
        """Return the score of a member of a sorted set."""
        found: bytes | None = self._ask(("ZSCORE", key, member))[0]
        return found

    def entries(self, key: str) -> list[Any]:
        """Return the entries of a stream."""
        (found,) = self._ask(("XRANGE", key, "-", "+"))
        return list(found)

    def length(self, command: str, key: str) -> int:
        """Return what LLEN, HLEN, ZCARD or SCARD says about a key."""
        (found,) = self._ask((command, key))
        return int(found)

    # --- the wire ---

    def connection(self) -> Any:
        made = UnixDomainSocketConnection(path=self._path, protocol=2, socket_timeout=30)  # type: ignore[abstract]
        made.connect()
        return made

    def _run(self, source: str, *arguments: Any) -> Any:
        (reply,) = self._ask(("EVALSHA", self._sha_of(source), 0, *arguments))
        return reply

    def _sha_of(self, source: str) -> str:
        """Return the digest of a script that the server knows."""
        sha = _sha(source)
        if sha not in self._loaded:
            self._ask(("SCRIPT", "LOAD", source))
            self._loaded.add(sha)
        return sha

    def _ask(self, *commands: Command) -> list[Any]:
        replies = self._exchange(list(commands))
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def _exchange(self, commands: list[Command], connection: Any = None) -> list[Any]:
        raw = self._connection if connection is None else connection
        raw.send_packed_command(pack(commands))
        return read_replies(raw, len(commands))


def _ops_of(request: Request) -> dict[int, Op[Any]]:
    """Return the ops of a request by the places of their commands."""
    match request:
        case Op():
            return {0: request}
        case Watch():
            return dict(enumerate(request.reads, 1))
        case Transaction():
            return dict(enumerate(request.ops, 1))
        case _:
            return dict(enumerate(request))  # type: ignore[arg-type]
