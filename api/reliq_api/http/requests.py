"""Requests read within limits: counted while they stream in, one value per header."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from itertools import chain
from typing import Any

import msgspec
from fastapi import Request
from starlette.types import Message, Receive, Scope

from reliq_api.http.buffered import Buffered
from reliq_api.http.problems import Problem
from reliq_api.http.strict_json import read_json

REQUEST_LARGEST = 2 * 1024 * 1024  #: bytes of a request that has no body of a message
SLOWEST = 256 * 1024  #: bytes a second that a larger body must have on average
_HEADERS_MOST = 100
_HEADER_BYTES = 32 * 1024
_ONE_VALUE = frozenset(
    (
        b"authorization", b"content-type", b"content-encoding", b"content-length", b"idempotency-key", b"traceparent",
        b"host",
    )
)  # fmt: skip
_ONE_VALUE_EACH = (b"reliq-", b"ce-")  #: how the options and headers of a message, and attributes of an event, begin


WHOLE = "reliq.whole"  #: in the scope of a request whose whole body has arrived: returns it, as `receive` would

#: Makes the refusal of a body: its bytes, as a number or as "more than", and the limit.
TooLarge = Callable[[int | str, int], Problem]


def break_off(scope: Scope, problem: Problem) -> None:
    """Make a request that waits for its body raise this problem, because invalid HTTP has arrived."""
    scope["reliq.broken"] = problem


class BoundedBody:
    """The body of a request, limited in size and time, and counted in the memory for all bodies."""

    def __init__(
        self, scope: Scope, receive: Receive, buffered: Buffered, patience: float, largest: int = REQUEST_LARGEST
    ) -> None:
        """`patience`: seconds of silence; a body may take twice that in total, and a large one more."""
        self.scope = scope
        self._receive = receive
        self._buffered = buffered
        self._patience = patience
        self._started = asyncio.get_running_loop().time()
        self._received = 0
        self._released = 0
        self.allow(largest)

    def allow(self, largest: int, too_large: TooLarge | None = None, total: float | None = None) -> None:
        """Set the largest body. `too_large`: makes the refusal of a size; `total`: seconds that the body may take."""
        self._largest = largest
        self._too_large = too_large or _request_too_large
        if total is None:
            total = 2 * self._patience + max(0, largest - REQUEST_LARGEST) / SLOWEST
        self._until = self._started + total

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the body in pieces. Raises Problem if it is too large, too slow, or has no room in memory."""
        if hasattr(self, "_body"):
            yield self._body
            return
        self._check_length()
        more = True
        while more:
            part, more = await self._part()
            if part:
                yield part

    async def _part(self) -> tuple[bytes, bool]:
        """Return the next piece of the body, and whether more follows."""
        whole = self.scope.pop(WHOLE, None)
        part, more = await self._next() if whole is None else (whole(), False)
        if self._received + len(part) > self._largest:
            raise self._too_large(f"more than {self._largest:,}", self._largest)
        if part:
            self._buffered.take(len(part))
            self._received += len(part)
        return part, more

    def _check_length(self) -> None:
        """Refuse a body by its Content-Length, before it is read."""
        length = int(fields(self.scope).get("content-length", 0))
        if length > self._largest:
            raise self._too_large(length, self._largest)
        if self._largest <= self._buffered.most:  # else it is read in parts
            self._buffered.check(length)

    async def take(self, largest: int | None = None, too_large: TooLarge | None = None) -> bytes:
        """Return the body without keeping it: what is not needed any more takes no memory. `largest`: as `allow`."""
        if largest is not None:
            self.allow(largest, too_large)
        if hasattr(self, "_body"):
            return self._body
        self._check_length()
        body, more = await self._part()
        if not more:
            return body
        parts = [body]
        while more:
            part, more = await self._part()
            parts.append(part)
        return b"".join(parts)

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await self.take()
        return self._body

    def release(self, size: int | None = None) -> None:
        """Give back the memory for the first `size` bytes of the body, by default for all that was received."""
        size = self._received if size is None else min(size, self._received)
        self._buffered.give_back(size - self._released)
        self._released = size

    async def _next(self) -> tuple[bytes, bool]:
        """Return the next piece of a body that has not arrived as a whole, and whether more follows."""
        message = await self._receive_in_time()
        broken: Problem | None = self.scope.get("reliq.broken")
        if broken is not None:
            raise broken
        if message["type"] == "http.disconnect":
            raise Problem("request_timeout", "the client disconnected before its body was complete")
        return message.get("body", b""), message.get("more_body", False)

    async def _receive_in_time(self) -> Message:
        """Return the next message of the client; raises Problem if it does not come in time."""
        patience = asyncio.get_running_loop().time() + self._patience
        try:
            async with asyncio.timeout_at(min(patience, self._until)):
                return await self._receive()
        except TimeoutError:
            raise Problem(
                "request_timeout", f"the body did not come: {self._patience:g} s of silence, or slow"
            ) from None

    async def gone(self) -> None:
        """Wait until the client has closed its connection. Only for requests without a body, or whose body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class BoundedRequest(BoundedBody, Request):
    """A request with such a body, limited also in its depth."""

    def __init__(self, scope: Scope, receive: Receive, buffered: Buffered, patience: float) -> None:
        Request.__init__(self, scope, receive)
        BoundedBody.__init__(self, scope, receive, buffered, patience)

    async def json(self) -> Any:
        body = await self.body()
        try:
            return read_json(body)
        except msgspec.ValidationError as error:
            raise Problem("invalid_request", f"the body holds a value that cannot be read: {error}") from None


def _request_too_large(size: int | str, limit: int) -> Problem:
    has = f"{size:,}" if isinstance(size, int) else size
    return Problem("body_too_large", f"the request has {has} bytes, the limit is {limit:,}", limit=limit)


def fields(scope: Scope) -> dict[str, str]:
    """The headers as a dict, built once: a look-up of a missing one in Starlette's headers costs as much."""
    found: dict[str, str] | None = scope.get("reliq.headers")
    if found is None:
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        scope["reliq.headers"] = found
    return found


def check_headers(scope: Scope) -> None:
    """Refuse headers that are too large, and repeated headers that may occur only once."""
    headers, found = scope["headers"], fields(scope)
    if len(headers) > _HEADERS_MOST or sum(map(len, chain.from_iterable(headers))) > _HEADER_BYTES:
        raise Problem("headers_too_large", f"more than {_HEADERS_MOST} headers, or more than {_HEADER_BYTES} bytes")
    if "transfer-encoding" in found and found["transfer-encoding"].strip().lower() != "chunked":
        raise Problem("invalid_header", "send the body without a transfer-encoding, or chunked")
    if len(found) < len(headers):
        for name, count in Counter(name for name, _ in headers).items():
            if count > 1 and (name in _ONE_VALUE or name.startswith(_ONE_VALUE_EACH)):
                raise Problem("invalid_header", f"the header {name.decode('latin-1')} occurs more than once")
