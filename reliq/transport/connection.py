"""One connection to Redis, for threads."""

import contextlib
import socket
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from reliq import forks
from reliq.errors import ReliqError
from reliq.ops import Op, Request, Sleep, Transaction, Watch
from reliq.transport.calls import (
    answered,
    asked_elsewhere,
    carried_out,
    loading,
    not_sent,
    partly_sent,
    to_repeat,
    unknown_in_transaction,
    unknown_scripts,
    waits,
)
from reliq.transport.connection_state import ConnectionState
from reliq.transport.errors import ConnectionLost, TryAgain, connection_ended, failed, redis_errors
from reliq.transport.introduction import introduced, introduction
from reliq.transport.replies import read_replies
from reliq.transport.resp import Command, commands_of, pack, portions
from reliq.transport.sentinel import Sentinels
from reliq.transport.target import Endpoint

if TYPE_CHECKING:
    from reliq.transport.notices import Notices  # for clients that watch keys: monitors and idle workers

T = TypeVar("T")

_LOOK_EVERY = 0.25  #: seconds between two checks whether the master has changed
_IDLE = 1.0  #: seconds of idleness after which a connection is checked before use


class PendingReply:
    """The replies to commands that were sent together, not all read yet."""

    __slots__ = ("count", "lost", "replies")

    def __init__(self, count: int) -> None:
        self.count = count
        self.replies: list[Any] | None = None
        self.lost = False


class Connection(ConnectionState):
    """One connection. Reconnects when necessary."""

    def __init__(self, endpoint: Endpoint, name: str = "") -> None:
        super().__init__(endpoint, name)
        self._used_at = 0.0
        self.connected_at = 0.0  #: by time.monotonic()
        self.notices: Notices | None = None  #: of changes in what this connection reads
        self._owed: deque[PendingReply] = deque()  #: pending replies, in the order of sending
        _connections.add(self)

    @property
    def idle(self) -> bool:
        """Whether no answer is pending, and no transaction."""
        return not (self._owed or self.watching)

    @property
    def socket(self) -> Any:
        """The socket, to wait until `readable`; None while there is no connection."""
        return getattr(self._raw, "_sock", None)

    @property
    def readable(self) -> bool:
        """Whether something has arrived, or the connection has ended."""
        return self._raw is None or self._ended()

    @property
    def reconnected(self) -> bool:
        """Whether this is not the first connection."""
        return self.connects > 1

    def perform(self, request: Request) -> Any:
        """Send a request once and read the answer. Raises ConnectionLost, TryAgain or a ReliqError."""
        if isinstance(request, Sleep):
            time.sleep(request.seconds)
            return None
        return self.finish(request, self.begin(request))

    def begin(self, request: Request) -> Any:
        """Send a request once; return a ticket for `finish`. Several may be under way. Raises ConnectionLost."""
        if isinstance(request, Watch):
            self.watching = False
        elif isinstance(request, Transaction) and request.repeatable:
            self._load_first(request)
        return self._send(commands_of(request))

    def _load_first(self, request: Transaction) -> None:
        """Load the scripts of a transaction that this connection has not loaded."""
        with not_sent():
            self._ensure_connected()
            commands = self._loaded.missing(request, self.connects)
            replies = self._exchange(commands) if commands else []
        self._loaded.note(request, self.connects, replies)

    def finish(self, request: Request, ticket: Any) -> Any:
        """Read the answer to a request that `begin` has sent; raises as `perform`."""
        replies = self._receive(ticket)
        if type(request) is Op and not isinstance(replies[0], Exception):  # nearly every call
            return request.read(replies[0])
        if unknown := unknown_scripts(replies):
            self._load(request, replies, unknown)
        if unknown_in_transaction(request, replies):
            self._exchange(loading(request))
            raise to_repeat(request, replies)
        if self.follow is not None and (moving := asked_elsewhere(request, replies)):
            for place, node in moving:
                replies[place] = self.follow(node, request, place)
        try:
            answer = self._answer(request, replies)
            if self._endpoint.sentinels is not None and waits(request):
                self._ask_for_failover(self._endpoint.sentinels)
            return answer
        except TryAgain as refusal:
            if refusal.elsewhere:
                self._depart()
            raise

    def receive(self, ticket: Any) -> None:
        """Wait for the answer to a request that `begin` has sent, or for the end of the connection."""
        with contextlib.suppress(ConnectionLost):  # `finish` says so
            self._receive(ticket)

    def arrived(self, ticket: Any) -> bool:
        """Whether the answer to a request has been read, because one behind it was, or will never come."""
        return ticket.replies is not None or ticket.lost

    def _load(self, request: Request, replies: list[Any], unknown: list[int]) -> None:
        """Load the scripts that the server did not know, and run them."""
        commands = commands_of(request)
        with partly_sent(carried_out(request, replies)):
            answers = self._exchange([*loading(request), *(commands[place] for place in unknown)])
        for place, answer in zip(unknown, answered(answers, len(unknown)), strict=True):
            replies[place] = answer

    def ask(self, request: Request, place: int) -> Any:
        """Run one command of a request on the node that its key is moving to."""
        asking = [("ASKING",), commands_of(request)[place]]
        with partly_sent():
            _, reply = self._exchange(asking)
            if unknown_scripts([reply]):
                (reply,) = answered(self._exchange([*loading(request), *asking]), 1)
        return reply

    def _ask_for_failover(self, sentinels: Sentinels) -> None:
        """Raise ConnectionLost during a failover from this master: writes confirmed by replicas may be lost."""
        address = (self._raw.host, int(self._raw.port))
        if not sentinels.vouch(address):
            raise ConnectionLost(sent=True, cause="a failover is under way")

    def _depart(self) -> None:
        """Leave a server that is no longer the master, and make the store's other connections look for the master."""
        self._endpoint.depart(self._epoch)
        self.close()

    def release(self) -> None:
        """End a run of steps and its watch."""
        if self.watching:
            self.close()
            self.watching = False

    def _exchange(self, commands: list[Command]) -> list[Any]:
        return self._receive(self._send(commands))

    def _send(self, commands: list[Command]) -> PendingReply:
        raw = self._ensure_connected()
        packed = pack(commands)
        owed = PendingReply(len(commands))
        try:
            self._owed.append(owed)  # in here: an interrupt just behind it has sent nothing
            for portion in portions(packed):
                raw.send_packed_command(portion)
        except connection_ended() as error:
            self.close()
            raise failed(error, sent=True) from None  # a write that fails part way may have delivered a whole command
        except BaseException:
            self.close()
            raise
        return owed

    def _receive(self, owed: PendingReply) -> list[Any]:
        """Read the pending replies; earlier ones are read first and kept."""
        while owed.replies is None:
            if owed.lost:
                raise ConnectionLost(sent=True, cause="the connection was lost")
            first = self._owed[0]
            try:
                if self._endpoint.sentinels is not None:
                    self._wait_for_answer()
                first.replies = read_replies(self._raw, first.count)
            except connection_ended() as error:
                self.close()
                raise failed(error, sent=True) from None
            except BaseException:
                self.close()  # an interrupt: the next reader would read the rest of this reply
                raise
            self._owed.popleft()
        return owed.replies

    def _wait_for_answer(self) -> None:
        """Wait as long as a reply may take, unless the server is no longer the master: then raise ConnectionLost."""
        until = time.monotonic() + self._raw.socket_timeout
        while time.monotonic() < until and not self._raw.can_read(_LOOK_EVERY):
            if self._epoch != self._endpoint.epoch:
                raise ConnectionLost(sent=True, cause="the master is elsewhere")

    def _ensure_connected(self) -> Any:
        mark = forks.mark()
        if self._mark != mark:
            self._raw, self._mark = None, mark  # the socket belongs to the parent
            self._identity, self.named = None, False  # and must not be ended
            self._forget()
        if self._epoch != self._endpoint.epoch and not self._owed:
            self.close()
        now = time.monotonic()
        if self._raw is not None and not self._owed and now - self._used_at > _IDLE and self._ended():
            self.close()  # noticed before a command is sent on a dead connection
        self._used_at = now
        if self._raw is None:
            self._connect(now)
        elif self.notices is not None and self.notices.wanted and not self._owed:
            self.notices.begin(self._endpoint.new_connection, self._exchange)
        return self._raw

    def _connect(self, now: float) -> None:
        if self.watching:
            raise ConnectionLost(sent=False, cause="the connection that watched is gone")
        self._epoch = self._endpoint.epoch
        raw = self._endpoint.new_connection()
        try:
            raw.connect()
        except (redis_errors().RedisError, OSError) as error:
            raw.disconnect()
            raise failed(error, sent=False) from None
        self._raw = raw
        self.connects += 1
        self.connected_at = now
        if self.connects > 1:
            self._endpoint.check_again()
        notices, self.notices = self.notices, None  # they begin once, below
        try:
            self._introduce()
        finally:
            self.notices = notices
        if self.on_connect is not None:
            self.on_connect(self.named)
        if self.notices is not None:
            self.notices.begin(self._endpoint.new_connection, self._exchange)

    def _introduce(self) -> None:
        """See that the server answers; name a connection that has a name, and make the server end the previous one."""
        try:
            with not_sent():
                replies = self._exchange(introduction(self._name, self._identity))
            if self._name:
                self.named, self._identity = introduced(replies, self.named)
        except TryAgain:
            self.close()
            raise

    def _ended(self) -> bool:
        """Whether the server has closed the connection, or sent unexpected data."""
        try:
            return bool(self._raw.can_read(0))
        except connection_ended():
            return True

    def wait_closed(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the server closes the connection; return whether it did."""
        until = time.monotonic() + timeout
        try:
            while (left := until - time.monotonic()) > 0:
                if self._ensure_connected().can_read(min(left, _LOOK_EVERY)) or self._epoch != self._endpoint.epoch:
                    self.close()
                    return True
        except (ConnectionLost, TryAgain, ReliqError, redis_errors().RedisError, OSError):
            self.close()
            return True
        return False

    def interrupt(self) -> None:
        """Make a call that another thread waits for fail with ConnectionLost. Thread-safe."""
        sock = self.socket  # redis-py's disconnect is for the thread that uses the connection
        if sock is not None:
            with contextlib.suppress(OSError):  # that of an SSLSocket lets the other thread go on without TLS
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def leave_to_parent(self) -> None:
        """Close this process's copy of the socket in a forked child; the parent's connection goes on."""
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.disconnect()  # redis-py does not shut down the socket of another process

    def _forget(self) -> None:
        """Forget the pending replies of a lost connection."""
        for owed in self._owed:
            owed.lost = True
        self._owed.clear()

    def close(self) -> None:
        self._forget()
        raw, self._raw = self._raw, None  # first: redis-py connects again, without an introduction, what it has closed
        if raw is not None:
            raw.disconnect()


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """Close a forked child's copies of its parent's sockets: they would keep the connections of a killed parent open,
    and a monitor would take it for alive.
    """
    for connection in list(_connections):
        connection.leave_to_parent()


forks.in_every_child(_leave_to_parent)
