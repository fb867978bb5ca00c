"""The display of bodies: JSON indented, other text unchanged, anything else in hex. Templates print it as text."""

import unicodedata
from dataclasses import dataclass
from typing import Literal

import msgspec

TEXT_LARGEST = 64 * 1024  #: characters shown; the rest is for the download
HEX_LARGEST = 4 * 1024  #: bytes shown
_ROW = 16
_WHITE = {"\n", "\r", "\t"}


@dataclass(frozen=True, slots=True)
class Shown:
    kind: Literal["empty", "json", "text", "binary"]
    text: str
    cut: bool  #: whether only a part is shown


def shown(body: bytes) -> Shown:
    if not body:
        return Shown("empty", "", cut=False)
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
