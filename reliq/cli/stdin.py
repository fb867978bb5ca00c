"""Standard input as message bodies: read in bounded parts, never to the end of an endless pipe."""

import sys
from collections.abc import Iterator

import msgspec

from reliq.contract import values
from reliq.errors import InvalidMessage
from reliq.model.outgoing import too_large

_BATCH_BYTES = 4 * 1024 * 1024


def read_body(limit: int) -> bytes:
    """Read one body; raises InvalidMessage as soon as it is larger than the limit."""
    if sys.stdin.isatty():
        print("reliq: type the body; Ctrl-D on a line of its own ends it", file=sys.stderr)
    body = sys.stdin.buffer.read(limit + 1)
    if len(body) > limit:
        raise InvalidMessage(f"standard input: {_too_large(limit)}")
    return body


def read_batches(limit: int) -> Iterator[list[bytes]]:
    """Read lines, without their ends, in batches that fit one call; raises InvalidMessage at a line over the limit."""
    lines: list[bytes] = []
    size = number = 0
    while line := sys.stdin.buffer.readline(limit + 2):
        number += 1
        body = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(body) > limit:
            if lines:
                yield lines
            raise InvalidMessage(f"line {number} of standard input: {_too_large(limit)}")
        lines.append(body)
        size += len(body)
        if len(lines) == values.MAX_BATCH or size >= _BATCH_BYTES:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def say_broken_json(what: str, body: str | bytes) -> None:
    """Print to standard error why a text that begins like a JSON object or array is not valid JSON."""
    if why := _broken_json(body):
        print(f"reliq: the {what} begins like JSON, but was sent as text: {why}", file=sys.stderr)


def _broken_json(body: str | bytes) -> str:
    """Return why a body that begins like a JSON object or array is none; empty for any other body."""
    text = body.encode("utf-8", "replace") if isinstance(body, str) else body
    if not text.lstrip().startswith((b"{", b"[")):
        return ""
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return str(error).removeprefix("JSON is malformed: ")
    return ""


def _too_large(limit: int) -> str:
    return too_large(f"more than {limit:,}", limit, "--max-body")
