"""A script is its file, after those statements of the shared files that it needs, and no others."""

import re
from pathlib import Path

import pytest

from reliq.ops.script import Script, statements
from tests.support.scripts import FEATURES, LUA, scripts

SHARED = sorted([*LUA.glob("shared/*.lua"), *FEATURES.glob("*/lua/shared/*.lua")])


def code(text: str) -> str:
    """Return a text without comments and blank lines."""
    return "\n".join(line for line in re.sub(r"--.*", "", text).splitlines() if line.strip())


@pytest.mark.parametrize("path", SHARED, ids=lambda path: f"{path.parts[-4]}-{path.stem}")
def test_all_of_a_shared_file_is_in_its_statements(path: Path):
    text = path.read_text(encoding="utf-8")
    assert code("".join(one.text for one in statements(text))) == code(text)


@pytest.mark.parametrize("name", scripts())
def test_a_script_has_what_it_calls_and_changes(name: str):
    source = code(Script(name).source)
    used = re.search(r"^-- uses: (.+)$", scripts()[name].read_text(encoding="utf-8"), re.MULTILINE)
    shared = [path for path in SHARED if used and path.stem in used[1].split(", ")]
    texts = [path.read_text(encoding="utf-8") for path in shared]
    names = {one for text in texts for statement in statements(text) for one in statement.defined}
    defined = {one for some in re.findall(r"\blocal (?:function )?(\w[\w, ]*)", source) for one in some.split(", ")}
    called, changed = re.findall(r"(?<![\w.])(\w+)\(", source), re.findall(r"^ *(\w+) = .*[^,]$", source, re.MULTILINE)
    moments = {*re.findall(r"^    (\w+) = function", source.partition("\nmakers[")[2], re.MULTILINE)}
    assert {*called, *changed} & names - moments <= {one.strip() for one in defined}


def test_a_script_has_nothing_else():
    shared = (
        "-- What this file is for.\n\n"
        "local SIZE = 2 -- bytes\n"
        "local late\n\n"
        "-- Used by many.\nlocal function first(one)\n  return SIZE\nend\n\n"
        "local function second()\n  return late()\nend\n"
        "late = function()\n  return 1\nend\n"
        "local TABLE = {\n  1,\n}\n"
        "do\n  first()\nend\n"
        "local helped\nmakers[#makers + 1] = function()\n  helped = function()\n    second()\n  end\n\n"
        "  return {\n    has_left = function() first() end,\n  }\nend\n"
    )
    found = [(set(one.defined), one.text.partition("\n")[0]) for one in statements(shared)]
    assert found == [
        ({"SIZE"}, "local SIZE = 2 -- bytes"),
        ({"late"}, "local late"),
        ({"first"}, "-- Used by many."),
        ({"second"}, "local function second()"),
        ({"late"}, "late = function()"),
        ({"TABLE"}, "local TABLE = {"),
        (set(), "do"),
        ({"helped"}, "local helped"),
        ({"helped", "has_left"}, "makers[#makers + 1] = function()"),
    ]


def test_scripts_are_those_of_the_start_whatever_is_installed_since(monkeypatch: pytest.MonkeyPatch):
    """`pip install` replaces the files while processes run, which need some scripts for the first time days later."""
    names = scripts()
    before = {name: Script(name).source for name in names}
    statements.cache_clear()
    with monkeypatch.context() as replaced:
        for one in ("read_text", "exists", "glob"):
            replaced.delattr(Path, one)
        later = {name: Script(name).source for name in names}
    assert later == before


def test_the_most_frequent_call_carries_none_of_what_only_others_need():
    source = Script("push").source
    assert "local function delete_bodies(" in source
    assert "local function body_of(" in source  # which that one calls
    assert "local function group_of(" not in source
    assert "local TAIL" not in source
