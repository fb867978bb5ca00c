"""What a connection knows of itself and its server, for threads and for tasks."""

from collections.abc import Callable
from typing import Any

from reliq import forks
from reliq.ops import Request, Transaction, Watch
from reliq.transport.calls import Loaded, read
from reliq.transport.errors import TryAgain
from reliq.transport.introduction import Identity
from reliq.transport.target import Endpoint


class ConnectionState:
    """The base of Connection and AioConnection. `connects` counts the connections that were made."""

    def __init__(self, endpoint: Endpoint, name: str = "") -> None:
        self._endpoint = endpoint
        self._name = name
        self._raw: Any = None
        self._mark = forks.mark()
        self._epoch = endpoint.epoch
        self.watching = False  #: until the transaction, even if the connection is lost: the steps must begin again
        self.connects = 0
        self.idle_since = 0.0  #: by time.monotonic()
        self.named = False  #: the server knows its name
        #: Called for each new connection with whether it is named.
        self.on_connect: Callable[[bool], None] | None = None
        self._identity: Identity | None = None  #: of the latest connection, even if it is lost
        #: In a cluster: asks the node a key moves to, given the node, the request, and the command's place in it.
        self.follow: Callable[..., Any] | None = None
        self._loaded = Loaded()

    @property
    def connected(self) -> bool:
        """Whether a connection was made; the server may have ended it."""
        return self._raw is not None

    def _answer(self, request: Request, replies: list[Any]) -> Any:
        """Return the answer to a request; raises TryAgain or a ReliqError."""
        watched = self.watching
        if isinstance(request, (Watch, Transaction)):
            self.watching = isinstance(request, Watch)
        try:
            return read(request, replies)
        except TryAgain:
            self.watching = watched  # a refused transaction has ended the watch: it cannot be repeated alone
            raise
