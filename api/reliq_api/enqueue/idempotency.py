"""Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07): one request, however often it is sent.

A deduplication key with the same lifetime prevents a second enqueue: the enqueue script checks it in the step that
enqueues. The record only keeps what the client is to see: the first answer again, or a conflict.
"""

import hashlib
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from fastapi import Response

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.ops import Steps
from reliq.transport.aiostore import AioStore
from reliq_api.http.problems import Problem

log = logging.getLogger("reliq.api")

REMEMBERED = 24 * 3600.0  #: seconds for which a key is remembered
_MARGIN = 1.0  #: seconds of a request beyond the time for which its enqueue is repeated
_KEY = re.compile(r'"?([!#-~]{1,255}?)"?')  # the draft writes it as a quoted string; most clients do not
_FINGERPRINTED = ("content-type", "reliq-", "ce-")


class Record(msgspec.Struct):
    """The record of a request in Redis: its digest and, once there is one, its answer."""

    fingerprint: str
    run: str = ""  #: identifies the running repetition
    status: int = 0
    answer: str = ""


def key_of(headers: Mapping[str, str], client: str) -> str | None:
    """Return the idempotency key of a client's request; raises Problem if it is invalid."""
    text = headers.get("idempotency-key")
    if text is None:
        return None
    found = _KEY.fullmatch(text)
    if found is None:
        raise Problem("invalid_header", "Idempotency-Key: use 1 to 255 printable ASCII characters without spaces")
    return f"{client}:{found[1]}"


def fingerprint(headers: Mapping[str, str], body: bytes) -> str:
    digest = hashlib.sha256(body)
    for name, value in sorted(headers.items()):
        if name.startswith(_FINGERPRINTED):
            digest.update(f"\n{name}:{value}".encode())
    return digest.hexdigest()


class Answer(NamedTuple):
    """The answer to an enqueue."""

    status: int
    content: bytes  #: JSON

    def response(self) -> Response:
        return Response(self.content, self.status, media_type="application/json")


class OnlyOnce:
    """One request with its key."""

    def __init__(self, store: AioStore, queue: str, key: str, fingerprint: str, send_timeout: float) -> None:
        self._store = store
        self._key = key
        self._at = QueueKeys(queue).idempotency(key)
        self._fingerprint = fingerprint
        self._running = send_timeout + _MARGIN  #: seconds for which an unfinished request blocks its repetition

    async def answer(self, message: NewMessage, send: Callable[[], Awaitable[Answer]]) -> Response:
        """Return the answer of `send`, or the first one if the request was sent before. Raises Problem for a conflict.

        If Redis is away when the answer is noted, the record expires by itself; the answer does not depend on it.
        """
        replayed: Response | None = await self._store.run(self._begin())
        if replayed is not None:
            return replayed
        if message.dedup_key is None:  # so that the message is enqueued once, unless it has a key of its own
            message.dedup_key, message.window = f"idempotency {self._key}", REMEMBERED
        try:
            answer = await send()
        except (ReliqError, Problem):
            await self._note(ops.forget_request(self._at))  # a repetition must run
            raise
        record = Record(self._fingerprint, status=answer.status, answer=answer.content.decode())
        await self._note(ops.end_request(self._at, msgspec.json.encode(record), REMEMBERED))
        return answer.response()

    async def _note(self, request: ops.Op[Any]) -> None:
        try:
            await self._store.run(ops.one(request), timeout=0)
        except ReliqError as error:
            log.warning("idempotency: %s", error)

    def _begin(self) -> Steps[Response | None]:
        """Return None if the request must run, else the first answer. Raises Problem for a conflict."""
        mine = msgspec.json.encode(Record(self._fingerprint, secrets.token_hex(8)))
        _, text = yield [
            ops.begin_request(self._at, mine, self._running),
            ops.request_record(self._at),
        ]
        if text == mine:
            return None
        if text is None:  # it expired between the two
            raise Problem("request_in_progress", "the first request with this Idempotency-Key has just ended: repeat")
        first = msgspec.json.decode(text, type=Record)
        if first.fingerprint != self._fingerprint:
            raise Problem("idempotency_mismatch", "this Idempotency-Key was used for another request")
        if not first.status:
            raise Problem("request_in_progress", "the first request with this Idempotency-Key still runs")
        headers = {"Idempotency-Replayed": "true"}
        return Response(first.answer, first.status, headers=headers, media_type="application/json")
