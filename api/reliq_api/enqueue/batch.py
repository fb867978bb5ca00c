"""Batches: read in pieces, enqueued a thousand messages at a time, with one result for each message."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from reliq import aio
from reliq.contract.values import MAX_BATCH
from reliq.errors import OutcomeUnknown, ReliqError
from reliq.model.outgoing import NewMessage
from reliq_api.enqueue.bodies import conflict, encode
from reliq_api.enqueue.cloudevents import EVENTS
from reliq_api.enqueue.inbound import JSON, Form, Head, largest_text, media_type, read_message
from reliq_api.http.problems import Problem, of_error
from reliq_api.http.requests import REQUEST_LARGEST, BoundedRequest, fields
from reliq_api.http.strict_json import check_json_text, no_json
from reliq_api.pressure import Pressure
from reliq_api.settings import Settings

ARRAY_LARGEST = 8 * 1024 * 1024  #: bytes of a JSON array: it is read whole
STREAM_LARGEST = 1024 * 1024 * 1024  #: bytes of NDJSON; at most one call and one line of it are in memory
_CALL_BYTES = 4 * 1024 * 1024  #: bytes of messages in one call, or one message that is larger

_LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
_decode_array = msgspec.json.Decoder(list[Raw]).decode

Chunks = AsyncIterator[Iterable[bytes]]


def read_batch(request: BoundedRequest) -> tuple[Head, Chunks]:
    """Return what the headers say of the messages, and the stream of the messages' texts; raises Problem."""
    headers, settings = fields(request.scope), request.app.state.settings
    media = media_type(headers)
    if media in _LINES:
        return Head.of(Form.ENTRY, headers, settings), _lines(request)
    if media == JSON:
        return Head.of(Form.ENTRY, headers, settings), _array(request)
    if media == EVENTS:
        return Head.of(Form.EVENT, headers, settings), _array(request)
    raise Problem("unsupported_media_type", f"a batch is {JSON}, application/x-ndjson or {EVENTS}")


_NO_ARRAY = "the body is not an array: send the messages themselves as one, [{...}, {...}]"


async def _lines(request: BoundedRequest) -> Chunks:
    largest = max(largest_text(request.app.state.settings), REQUEST_LARGEST)
    rest = bytearray()
    async for part in request.stream():
        *lines, end = part.split(b"\n")
        if lines:
            rest += lines[0]
            lines[0], rest = bytes(rest), bytearray()
            yield _drained(lines)
        rest += end
        if len(rest) > largest:
            raise Problem("body_too_large", f"a line has more than {largest:,} bytes", limit=largest)
    yield [bytes(rest)]


def _drained(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the lines and keep none: a large one takes memory only until its message is read."""
    lines.reverse()
    while lines:
        yield lines.pop()


async def _array(request: BoundedRequest) -> Chunks:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > ARRAY_LARGEST:
            raise Problem(
                "body_too_large", f"an array has at most {ARRAY_LARGEST} bytes: send NDJSON", limit=ARRAY_LARGEST
            )
    text = bytes(body)
    check_json_text(text)
    try:
        yield map(bytes, _decode_array(text))
    except msgspec.ValidationError:
        raise Problem("invalid_request", _NO_ARRAY) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise no_json(text, error) from None


class Batch:
    """One batch call. Each message gets its own result; a refused one does not hold back the others."""

    def __init__(
        self,
        queue: aio.Queue,
        pressure: Pressure,
        settings: Settings,
        head: Head,
        confirm: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """`confirm` raises Problem if the key of the request is no longer valid."""
        self._confirm = confirm
        self._queue = queue
        self._pressure = pressure
        self._head = head
        self._most = settings.max_batch
        self._results: list[Raw] = []
        self._pending: dict[int, NewMessage] = {}  #: by their places among the results
        self._enqueued = self._deduplicated = self._refused = self._unknown = 0
        self._seen = self._pending_bytes = 0

    @property
    def finished(self) -> int:
        """How many bytes of the request belong to messages that have their result."""
        return self._seen - self._pending_bytes

    async def add(self, texts: Iterable[bytes]) -> None:
        """Add messages; raises Problem, with the results so far, for too many messages or if Redis refuses."""
        for text in texts:
            size = len(text) + 1
            self._seen += size
            if not text or text.isspace():
                continue
            if len(self._results) == self._most:
                await self._flush()
                raise self.stopped(Problem("batch_too_large", f"a batch has at most {self._most} messages"))
            try:
                message = read_message(self._head, text)
            except Problem as problem:
                self._refuse(problem)
            except ReliqError as error:
                self._refuse(of_error(error))
            else:
                self._pending[len(self._results)] = message
                self._results.append(_NOTHING)
                self._pending_bytes += size
                del text
                if len(self._pending) == MAX_BATCH or self._pending_bytes >= _CALL_BYTES:
                    await self._flush()

    def _refuse(self, problem: Problem) -> None:
        self._refused += 1
        self._results.append(_result("refused", code=problem.code, detail=problem.detail))

    async def flush(self) -> None:
        """Enqueue the rest; raises Problem if any message of the batch was refused."""
        await self._flush()
        if self._refused:
            raise self.stopped(Problem("batch_incomplete", f"{self._refused} of {len(self._results)} were refused"))

    async def _flush(self) -> None:
        if not self._pending:
            return
        places = list(self._pending)
        try:
            if self._confirm is not None:
                await self._confirm()
            await self._pressure.check()
            ids = await self._queue.send_many(self._pending.values(), durability=self._head.durability)
        except Problem as problem:
            raise self.stopped(problem) from None
        except ReliqError as error:
            for position, identity in error.enqueued.items():
                self._note(places[position], identity)
            said = of_error(error)
            if isinstance(error, OutcomeUnknown):
                self._note_unknown(error.ids, said)
            raise self.stopped(said) from None
        for place, identity in zip(places, ids, strict=True):
            self._note(place, identity)
        self._pending_bytes = 0

    def _note(self, place: int, identity: str) -> None:
        """Note that a pending message is enqueued, or that an earlier one takes its place."""
        message = self._pending.pop(place)
        status = "deduplicated" if message.duplicate else "enqueued"
        self._results[place] = _result(status, id=identity, **conflict(message))
        self._deduplicated += message.duplicate
        self._enqueued += not message.duplicate

    def _note_unknown(self, ids: Collection[str], problem: Problem) -> None:
        """Note the pending messages of which it is unknown whether they are enqueued; no ids: all of them."""
        for place, message in list(self._pending.items()):
            identity = message.first_id or message.id
            if identity in ids or not ids:
                self._results[place] = _result("unknown", code=problem.code, id=identity)
                self._unknown += 1
                del self._pending[place]

    def stopped(self, problem: Problem) -> Problem:
        """Add the result of each message read so far to the problem; pending messages are not sent."""
        for place, message in self._pending.items():
            self._refused += 1
            self._results[place] = _result("refused", code=problem.code, id=message.id)
        self._pending.clear()
        problem.extra.update(self.summary())
        return problem

    def summary(self) -> dict[str, Any]:
        return {
            "enqueued": self._enqueued,
            "deduplicated": self._deduplicated,
            "refused": self._refused,
            "unknown": self._unknown,
            "results": self._results,
        }


_NOTHING = Raw(b"null")


def _result(status: str, **members: Any) -> Raw:
    return Raw(encode({"status": status, **members}))
