"""Lua scripts: each file, after what it needs of the files of shared functions.

Redis runs the whole text at each call, so a function costs time wherever it is defined, called or not. So a script
gets the statements that its own code names, and those that these name.
"""

import functools
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_LUA = Path(__file__).parent.with_name("lua")
_FEATURES = _LUA.with_name("features")
#: The text of each Lua file. All are read with this module: a process keeps its scripts when another version is
#: installed over it, whose scripts take other keys and arguments.
_TEXTS = {
    path: path.read_text(encoding="utf-8")
    for folder in (_LUA, *sorted(_FEATURES.glob("*/lua")))
    for path in sorted(folder.rglob("*.lua"))
}
#: A statement that begins a line, with the comment above it. Its other lines are indented, or close a block.
_STATEMENT = re.compile(r"(?:^--.*\n)*^(?!--)\S.*\n(?:^(?:[ \t].*|[)}].*|end\b.*|)\n)*", re.MULTILINE)
_DEFINED = re.compile(r"\s*(?:local (?:function )?)?(\w+(?:, \w+)*)(?: = |\(|\s*$)", re.MULTILINE)
_PART = "makers["  #: begins a feature's part, which defines what its scripts call, and returns functions of moments
_CALLED = re.compile(r"^  (\w+) = ", re.MULTILINE)
_MOMENT = re.compile(r"^    (\w+) = ", re.MULTILINE)
_COMMENT = re.compile(r"--.*")
_NAME = re.compile(r"[A-Za-z_]\w*")


class Script:
    """A Lua script: what it needs of the files named in its `-- uses:` line, followed by its file.

    `name`: of a file in reliq/lua, or `feature/file` of one in reliq/features/feature/lua.
    """

    def __init__(self, name: str) -> None:
        feature, _, self.name = name.rpartition("/")
        folder = _FEATURES / feature / "lua" if feature else _LUA
        source = _TEXTS[folder / f"{self.name}.lua"]
        uses = re.search(r"^-- uses: (.+)$", source, re.MULTILINE)
        shared = [path for one in uses[1].split(", ") for path in _shared(folder, one)] if uses else []
        needed = _needed([one for path in shared for one in statements(_TEXTS[path])], _names(_COMMENT.sub("", source)))
        self.source = "".join([*(one.text for one in needed), source])
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


class Statement(NamedTuple):
    """A statement of a shared file."""

    text: str
    defined: frozenset[str]  #: names; without any, every script needs it
    names: frozenset[str]  #: all that it has, but for the moments of a feature's part


@functools.cache
def statements(text: str) -> list[Statement]:
    """Return the statements of a file of shared functions, by its text."""
    return [_statement(one) for one in _STATEMENT.findall(text)]


def _statement(text: str) -> Statement:
    code = _COMMENT.sub("", text).lstrip()
    if code.startswith(_PART):
        called, _, moments = code.partition("\n  return {\n")
        defined = {*_CALLED.findall(called), *_MOMENT.findall(moments)}
        return Statement(text, frozenset(defined), _names(called + _MOMENT.sub("", moments)))
    found = _DEFINED.match(code)
    names = found[1].split(", ") if found and found[1] != "do" else ()
    return Statement(text, frozenset(names), _names(code))


def _names(code: str) -> frozenset[str]:
    return frozenset(_NAME.findall(code))


def _needed(shared: Sequence[Statement], names: frozenset[str]) -> list[Statement]:
    """Return the statements that define one of these names, or a name that one of them needs."""
    while True:
        found = [one for one in shared if not one.defined or one.defined & names]
        more = names.union(*(one.names for one in found))
        if more == names:
            return found
        names = more


def _shared(folder: Path, name: str) -> list[Path]:
    """Return a file of shared functions, that of the slice or of the core; with `follow` those of all features too."""
    own = folder / "shared" / f"{name}.lua"
    path = own if own in _TEXTS else _LUA / "shared" / f"{name}.lua"
    if name != "follow":
        return [path]
    return [path, _LUA / "shared" / "ring.lua", *(one for one in _TEXTS if one.name == "moments.lua")]
