"""The bodies of large messages: requested while handlers of earlier messages run, and in memory while their own run."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from reliq.contract import values
from reliq.model.message import Message
from reliq.protocol.bodies import first_of
from reliq.transport.store import PendingCall
from reliq.worker.exchange import Exchange


class _Request(NamedTuple):
    """A request for the bodies of messages, whose reply has not been read yet."""

    messages: Sequence[Message]
    size: int  #: bytes of the bodies
    call: PendingCall[list[bytes | None]]


class Bodies:
    """Reads the bodies that are apart from their elements, in the order in which their messages start.

    A few requests are under way, so that Redis prepares the next bodies while this process receives some and runs
    handlers. For the loop's own thread.
    """

    def __init__(self, exchange: Exchange, more: Callable[[], None]) -> None:
        """`more` is called when all expected bodies are requested; it may expect messages that start after these."""
        self._exchange = exchange
        self._more = more
        self._expected: list[Message] = []  #: in the order in which they start, their bodies not requested yet
        self._requests: deque[_Request] = deque()
        self._bytes = 0  #: of the requested bodies
        #: Messages that start next, with their bodies, by element: each push of a message has another one.
        self.opened: dict[bytes, Message] = {}

    @property
    def under_way(self) -> bool:
        """Whether a request is under way."""
        return bool(self._requests)

    def expect(self, messages: Iterable[Message]) -> None:
        """Note claimed messages, which start after those expected before, and request the first bodies."""
        self._expected += [message for message in messages if message.reference]
        self._request_ahead()

    def expect_nothing(self) -> None:
        """Forget the expected messages, because they were handed back."""
        self._expected.clear()

    def open(self, message: Message) -> Message | None:
        """Return a message that starts now and is not in `opened`, with its body; None if the body does not exist."""
        while True:
            if not self._requests:
                self._request_now(message)
            if message in self._receive():
                return self.opened.pop(message.element, None)

    def _request_now(self, message: Message) -> None:
        """Request a body that was not requested ahead; messages expected before this one have been handed back."""
        known = message in self._expected
        self._expected[: self._expected.index(message) + 1 if known else 0] = [message]
        self._request()

    def _request_ahead(self) -> None:
        while self._expected and self._bytes + self._expected[0].size <= values.READ_AHEAD_BYTES:
            self._request()

    def _request(self) -> None:
        """Request the next bodies: as many as have STREAM_BYTES, or two with half of what is read ahead, or one."""
        two = min(2 * self._expected[0].size, values.READ_AHEAD_BYTES // 2)
        count, size = first_of(self._expected, max(values.STREAM_BYTES, two))
        messages = self._expected[:count]
        self._requests.append(_Request(messages, size, self._exchange.request_bodies(messages)))
        self._bytes += size
        del self._expected[:count]

    def _receive(self) -> Sequence[Message]:
        """Open the messages of the first request, and send further requests; return these messages."""
        first = self._requests[0]
        try:
            bodies = self._exchange.answer(first.call)
        except BaseException:  # most likely the connection is lost, and the other replies with it
            self._expected[:0] = [message for request in self._requests for message in request.messages]
            self._requests.clear()
            self._bytes = 0
            raise
        self._requests.popleft()
        self._bytes -= first.size
        self.opened.clear()
        for message, body in zip(first.messages, bodies, strict=True):
            if body is not None:
                self.opened[message.element] = message.opened(body)
        if not self._expected:
            self._more()
        self._request_ahead()
        return first.messages
