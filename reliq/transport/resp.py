"""Requests as commands, and commands encoded in Redis' protocol (RESP 2)."""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from reliq.model.keys import OwnKey
from reliq.ops import Op, Packed, Request, Sleep, Transaction, Watch

T = TypeVar("T")
Command = tuple[Any, ...]
_SAME_KEYS = 16  #: of a script, from the first on, whose encoding is cached: keys of messages come after them
_LARGE = 16 * 1024  #: bytes above which copying costs more than a separate send
_PORTION = 1024 * 1024  #: bytes of a request from which on the next ones have a timeout of their own


# --- shared by threads and asyncio
# -------------------------------------------------------------------------------------------


def commands_of(request: Request) -> list[Command]:
    match request:
        case Op():
            return [request.command]
        case Watch():
            return [("WATCH", *request.keys), *(op.command for op in request.reads)]
        case Transaction(ops=()):
            return [("UNWATCH",)]
        case Transaction():
            return [("MULTI",), *(op.command for op in request.ops), ("EXEC",)]
        case Sleep():
            raise TypeError("a Sleep is not a command")
        case _:
            return [op.command for op in request]


def pack(commands: Iterable[Command]) -> list[bytes | memoryview]:
    """Encode commands, several times as fast as redis-py; large arguments are not copied."""
    pieces: list[bytes | memoryview] = []
    whole = True
    for command in commands:
        count, head = len(command), len(pieces)
        pieces.append(b"")
        if command[0] == "EVALSHA":  # mostly the same keys as in the last call
            fixed = 3 + min(command[2], _SAME_KEYS)
            while type(command[fixed - 1]) is OwnKey:
                fixed -= 1
            pieces.append(_bulks(command[:fixed]))
            command = command[fixed:]
        for part in command:
            if type(part) is bytes:
                size = len(part)
                if size > _LARGE:
                    pieces += (b"$%d\r\n" % size, part, b"\r\n")
                    whole = False
                else:
                    pieces.append(b"$%d\r\n%b\r\n" % (size, part))
            elif type(part) is Packed:
                pieces += part.pieces
                count += part.count - 1
                whole = False
            elif type(part) is OwnKey:
                pieces.append(b"$%d\r\n%b\r\n" % (len(part), part.encode()))
            else:
                pieces.append(_bulk(part if type(part) is str else str(part)))
        pieces[head] = b"*%d\r\n" % count
    return [b"".join(pieces)] if whole else list(_runs(pieces))


def portions(packed: Sequence[bytes | memoryview]) -> Iterator[Sequence[bytes | memoryview]]:
    """Divide an encoded request into what is written within one timeout of the connection.

    A link on which the whole takes longer is slow, not broken.
    """
    if sum(map(len, packed)) <= _PORTION:
        yield packed
        return
    portion: list[memoryview] = []
    size = 0
    for piece in packed:
        for at in range(0, len(piece), _PORTION):
            portion.append(memoryview(piece)[at : at + _PORTION])
            size += len(portion[-1])
            if size >= _PORTION:
                yield portion
                portion, size = [], 0
    if portion:
        yield portion


def _runs(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Join small pieces; pass on large pieces unchanged."""
    for large, run in itertools.groupby(pieces, lambda piece: len(piece) > _LARGE):
        if large:
            yield from run
        else:
            yield b"".join(run)


@functools.lru_cache(maxsize=512)  # some calls have keys of one message: these must not fill the memory
def _bulks(parts: tuple[str | int, ...]) -> bytes:
    return b"".join(_bulk(str(part)) for part in parts)


@functools.lru_cache(maxsize=1024)  # mostly keys and script digests, the same in every call
def _bulk(text: str) -> bytes:
    data = text.encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)
