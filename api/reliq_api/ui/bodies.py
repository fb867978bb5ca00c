"""The display of bodies: JSON indented, other text unchanged, anything else in hex. Templates print it as text."""

import codecs
import unicodedata
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

TEXT_LARGEST = 64 * 1024  #: characters shown; the rest is for the download
HEX_LARGEST = 4 * 1024  #: bytes shown
_ROW = 16
_WHITE = {"\n", "\r", "\t"}


@dataclass(frozen=True, slots=True)
class Shown:
    kind: Literal["empty", "json", "text", "binary", "unread"]
    text: str
    cut: bool  #: whether only a part is shown


def shown(body: bytes, size: int = 0) -> Shown:
    """Return what a page shows of a body; `size`: bytes of the whole body, of which `body` may be the start."""
    if not body:
        return Shown("unread", "", cut=True) if size else Shown("empty", "", cut=False)
    if len(body) < size:
        body = _without_split_character(body)
    shown = _shown(body)
    return shown if len(body) >= size else replace(shown, cut=True)


def _without_split_character(body: bytes) -> bytes:
    """Remove the first bytes of a UTF-8 character at the end, the rest of which was not read."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
    decoder.decode(body)
    split = len(decoder.getstate()[0])
    return body[: len(body) - split]


def _shown(body: bytes) -> Shown:
    kind: Literal["json", "text"] = "json"
    try:
        # Formatted without decoding into values: no number loses digits, no repeated name disappears.
        text = msgspec.json.format(body, indent=2).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        kind = "text"
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return _in_hex(body)
    if any(unicodedata.category(one) == "Cc" and one not in _WHITE for one in text[:TEXT_LARGEST]):
        return _in_hex(body)
    return Shown(kind, text[:TEXT_LARGEST], cut=len(text) > TEXT_LARGEST)


def _in_hex(body: bytes) -> Shown:
    rows = (_hex_row(place, body[place : place + _ROW]) for place in range(0, min(len(body), HEX_LARGEST), _ROW))
    return Shown("binary", "\n".join(rows), cut=len(body) > HEX_LARGEST)


def _hex_row(place: int, part: bytes) -> str:
    printable = "".join(chr(one) if 0x20 <= one < 0x7F else "." for one in part)
    return f"{place:08x}  {part.hex(' '):<{_ROW * 3 - 1}}  {printable}"
