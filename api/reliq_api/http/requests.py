"""Requests read within limits: counted while they stream in, strict JSON, one value per header."""

import asyncio
import codecs
import json
import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
from fastapi import Request
from starlette.types import Message, Receive, Scope

from reliq_api.http.buffered import Buffered
from reliq_api.http.problems import Problem

REQUEST_LARGEST = 2 * 1024 * 1024  #: bytes of a request that has no body of a message
SLOWEST = 256 * 1024  #: bytes a second that a larger body must have on average
DEPTH_LARGEST = 64
_UTF8_PART = 1024 * 1024
_HEADERS_MOST = 100
_HEADER_BYTES = 32 * 1024
_ONE_VALUE = frozenset(
    (
        b"authorization", b"content-type", b"content-encoding", b"content-length", b"idempotency-key", b"traceparent",
        b"host", b"reliq-delay", b"reliq-ttl", b"reliq-id", b"reliq-dedup-key", b"reliq-window", b"reliq-key",
        b"reliq-limit-key", b"reliq-priority", b"reliq-durability", b"reliq-replace", b"reliq-debounce",
        b"reliq-at-most",
    )
)  # fmt: skip
_NAME_ENDS = re.compile(rb'"[ \t\r\n]*:')
_BRACKETS = re.compile(rb'(?s)"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]')


def break_off(scope: Scope, problem: Problem) -> None:
    """Make a request that waits for its body raise this problem, because invalid HTTP has arrived."""
    scope["reliq.broken"] = problem


class BoundedRequest(Request):
    """A request with a body limited in size, time and depth, counted in the memory for all bodies."""

    def __init__(self, scope: Scope, receive: Receive, buffered: Buffered, patience: float) -> None:
        """`patience`: seconds of silence; a body may take twice that in total, and a large one more."""
        super().__init__(scope, receive)
        self._buffered = buffered
        self._patience = patience
        self._started = asyncio.get_running_loop().time()
        self._received = 0
        self._released = 0
        self.allow(REQUEST_LARGEST)

    def allow(
        self, largest: int, too_large: Callable[[int | str], Problem] | None = None, total: float | None = None
    ) -> None:
        """Set the largest body. `too_large`: makes the refusal of a size; `total`: seconds that the body may take."""
        self._largest = largest
        self._too_large = too_large or self._request_too_large
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
            message = await self._next()
            part = message.get("body", b"")
            more = message.get("more_body", False)
            if self._received + len(part) > self._largest:
                raise self._too_large(f"more than {self._largest:,}")
            if part:
                self._buffered.take(len(part))
                self._received += len(part)
                yield part

    def _check_length(self) -> None:
        """Refuse a body by its Content-Length, before it is read."""
        length = int(fields(self).get("content-length", 0))
        if length > self._largest:
            raise self._too_large(length)
        if self._largest <= self._buffered.most:  # else it is read in parts
            self._buffered.check(length)

    def _request_too_large(self, size: int | str) -> Problem:
        has = f"{size:,}" if isinstance(size, int) else size
        return Problem(
            "body_too_large", f"the request has {has} bytes, the limit is {self._largest:,}", limit=self._largest
        )

    async def taken(self) -> bytes:
        """Return the body without keeping it: what is not needed any more takes no memory."""
        body = bytearray()
        async for part in self.stream():
            body += part
        return bytes(body)

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await self.taken()
        return self._body

    def release(self, size: int | None = None) -> None:
        """Give back the memory for the first `size` bytes of the body, by default for all that was received."""
        size = self._received if size is None else min(size, self._received)
        self._buffered.give_back(size - self._released)
        self._released = size

    async def _next(self) -> Message:
        patience = asyncio.get_running_loop().time() + self._patience
        try:
            async with asyncio.timeout_at(min(patience, self._until)):
                message = await self.receive()
        except TimeoutError:
            raise Problem(
                "request_timeout", f"the body did not come: {self._patience:g} s of silence, or slow"
            ) from None
        broken: Problem | None = self.scope.get("reliq.broken")
        if broken is not None:
            raise broken
        if message["type"] == "http.disconnect":
            raise Problem("request_timeout", "the client went away before its body had come")
        return message

    async def json(self) -> Any:
        body = await self.body()
        check_json_text(body)
        try:
            return read_json(body)
        except msgspec.ValidationError as error:
            raise Problem("invalid_request", f"the body holds a value that cannot be read: {error}") from None


async def gone(request: Request) -> None:
    """Wait until the client has closed its connection; only for a request with a body that was read, or without one."""
    message = await request.receive()
    while message["type"] != "http.disconnect":
        message = await request.receive()


def fields(request: Request) -> dict[str, str]:
    """The headers as a dict, built once: a look-up of a missing one in Starlette's headers costs as much."""
    scope = request.scope
    found: dict[str, str] | None = scope.get("reliq.headers")
    if found is None:
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        scope["reliq.headers"] = found
    return found


def check_headers(scope: Scope) -> None:
    """Refuse headers that are too large, and repeated headers that may occur only once."""
    headers = scope["headers"]
    if len(headers) > _HEADERS_MOST or sum(len(name) + len(value) for name, value in headers) > _HEADER_BYTES:
        raise Problem("headers_too_large", f"more than {_HEADERS_MOST} headers, or more than {_HEADER_BYTES} bytes")
    names = [name for name, _ in headers]
    if b"transfer-encoding" in names and dict(headers)[b"transfer-encoding"].strip().lower() != b"chunked":
        raise Problem("invalid_header", "send the body without a transfer-encoding, or chunked")
    if len(set(names)) < len(names):
        for name in _ONE_VALUE:
            if names.count(name) > 1:
                raise Problem("invalid_header", f"the header {name.decode()} occurs more than once")


def check_json_text(body: bytes) -> None:
    """Refuse text that is not UTF-8 or nested too deeply, before a parser recurses into it."""
    _check_utf8(body)
    if body.count(b"[") + body.count(b"{") <= DEPTH_LARGEST:
        return
    depth = 0
    for found in _BRACKETS.finditer(body):
        first = found[0][:1]
        if first in b"[{":
            depth += 1
            if depth > DEPTH_LARGEST:
                raise Problem("invalid_json", f"the body is nested deeper than {DEPTH_LARGEST} levels")
        elif first in b"]}":
            depth -= 1


def _check_utf8(body: bytes) -> None:
    """Refuse what is not UTF-8, in parts: the text of a large body would take up to four times its memory."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(body), _UTF8_PART):
        before = start - len(decoder.getstate()[0])
        part = body[start : start + _UTF8_PART]
        try:
            decoder.decode(part, final=start + _UTF8_PART >= len(body))
        except UnicodeDecodeError as error:
            raise Problem("invalid_json", f"the body is not UTF-8 (byte {before + error.start})") from None


def read_json(text: bytes) -> Any:
    """Return a JSON value as message.json() would. Raises Problem, or msgspec.ValidationError for too large a number.

    Stricter than Python's parser: no NaN, no lone surrogates, and no repeated names in an object, as parsers differ in
    which of the two they use.
    """
    try:
        value = msgspec.json.decode(text)
    except msgspec.ValidationError:
        raise
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("invalid_json", f"the body is not JSON: {error}") from None
    # Each name has one colon. If there are more colons, some are part of texts, or a name is repeated.
    colons = text.count(b":")
    if colons > 1 and colons != (names := _names(value)) and len(_NAME_ENDS.findall(text)) != names:
        json.loads(text, object_pairs_hook=_distinct)
    return value


def _names(value: Any) -> int:
    """Count the names of all objects in a value."""
    if type(value) is dict:
        return len(value) + sum(map(_names, value.values()))
    return sum(map(_names, value)) if type(value) is list else 0


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise Problem("invalid_json", "an object has the same name twice")
