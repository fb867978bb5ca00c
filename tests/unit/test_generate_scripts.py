"""Scripts name their keys and arguments in their headers; Lua's locals and Python's builders are written from those."""

import inspect
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from reliq.model.keys import QueueKeys
from tests.support.scripts import FEATURES, scripts
from tools import generate_scripts

LUA = generate_scripts.ROOT / generate_scripts.LUA
SCRIPTS = scripts()
KEYS = QueueKeys("q")
OWN = generate_scripts.key_names(generate_scripts.ROOT)[0].keys()
ASSIGNED = re.compile(r"^local ([\w, ]+) = (.+)$", re.MULTILINE)
SCRIPT = """-- example: does nothing.
--
-- KEYS  {keys}
-- ARGV  {arguments}
--       n: how many
-- Returns nothing
{code}
"""


def block_of(script: str) -> str:
    found = generate_scripts.BLOCK.search(SCRIPTS[script].read_text(encoding="utf-8"))
    return found[0] if found else ""


def written(tmp_path: Path, keys: str, arguments: str, code: str) -> str:
    """Return the block of a script."""
    path = tmp_path / "example.lua"
    path.write_text(SCRIPT.format(keys=keys, arguments=arguments, code=code))
    block = generate_scripts.locals_of(generate_scripts.read_script(path, {"places": 13, "outcomes": 4, "slots": 2}))
    return "\n".join(block.splitlines()[1:-1])


def copy_of_the_tree(tmp_path: Path) -> Path:
    for folder in (LUA, *FEATURES.glob("*/lua")):
        shutil.copytree(folder, tmp_path / folder.relative_to(generate_scripts.ROOT))
    for path in (generate_scripts.KEYS, generate_scripts.TARGET):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(generate_scripts.ROOT / path, tmp_path / path)
    return tmp_path


def by_hand(root: Path) -> dict[str, str]:
    """Return the text of the scripts without what is generated."""
    files = sorted((root / generate_scripts.LUA).rglob("*.lua"))
    return {path.name: generate_scripts.BLOCK.sub("", path.read_text(encoding="utf-8")) for path in files}


def test_the_scripts_and_builders_in_the_tree_are_the_generated_ones():
    assert generate_scripts.main(["--check"]) == 0


@pytest.mark.parametrize("path", sorted([*LUA.rglob("*.lua"), *FEATURES.rglob("*.lua")]), ids=lambda path: path.stem)
def test_no_number_of_a_key_or_argument_is_written_by_hand(path):
    code = generate_scripts.BLOCK.sub("", path.read_text(encoding="utf-8"))
    numbers = r"(KEYS|ARGV)\[\d|unpack\((KEYS|ARGV), \d|#(KEYS|ARGV) - \d|= [1-9]\d*, #(KEYS|ARGV)"
    assert re.search(numbers, code) is None


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_builder_puts_each_name_where_the_script_reads_it(script):
    feature, _, name = script.rpartition("/")
    module = import_module(f"reliq.features.{feature}.signatures" if feature else "reliq.ops.signatures")
    build = getattr(module, name)
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(build).parameters.items():
        rest: Any = [f"{name} 1", f"{name} 2"] if "Iterable" in str(parameter.annotation) else name
        if "tuple" in str(parameter.annotation):
            rest = [(one,) for one in rest]
        given[name] = (
            True if parameter.annotation is bool else {"keys": KEYS, "outcomes": KEYS.outcomes}.get(name, rest)
        )
    called, keys, arguments = build(**given)
    given |= {name: key for name in OWN - {*given} if {*(key := getattr(KEYS, name))} <= {*keys} or key in keys}
    assert called == script
    for names, values in ASSIGNED.findall(block_of(script)):
        for name, value in zip(names.split(", "), values.split(", "), strict=True):
            read = re.search(r"(KEYS|ARGV)\[(\d+)\]", value)
            if read:
                found = (keys if read[1] == "KEYS" else arguments)[int(read[2]) - 1]
                assert found == (1 if given[name] is True else given[name])
            elif isinstance(some := given.get(name.lower()), list | tuple):  # where a group or the rest begins
                first = some[0][0] if isinstance(some[0], tuple) else some[0]
                assert first in (keys[int(value) - 1 :][:1] + arguments[int(value) - 1 :][:1])


def test_a_key_added_to_the_places_changes_nothing_else_by_hand(tmp_path):
    root = copy_of_the_tree(tmp_path)
    before, builders = by_hand(root), (root / generate_scripts.TARGET).read_text()
    path = root / generate_scripts.KEYS
    source = path.read_text()
    assert "self.followed, self.history,\n" in source
    path.write_text(source.replace("self.followed, self.history,\n", "self.followed, self.history, self.told,\n"))

    assert generate_scripts.main(["--check"], root) == 1
    assert generate_scripts.main([], root) == 0
    assert generate_scripts.main(["--check"], root) == 0

    assert by_hand(root) == before
    assert (root / generate_scripts.TARGET).read_text() == builders
    assert "told = KEYS[at + 13]" in (root / generate_scripts.LUA / "shared/place.lua").read_text()
    claim = (root / generate_scripts.LUA / "claim.lua").read_text()
    assert "local processing, lease, consumers = KEYS[15], KEYS[16], KEYS[17]" in claim
    assert "QUEUES_STEP, PLACES, DELAYED, INDEX, PRODUCERS, HOMES = 1, 17, 0, 14, 15, 16, 6" in (
        (root / "reliq/features/topics/lua/publish.lua").read_text()
    )


def test_a_file_that_differs_is_named(tmp_path, capsys):
    root = copy_of_the_tree(tmp_path)
    path = root / generate_scripts.LUA / "claim.lua"
    path.write_text(path.read_text().replace("room: number, consumer, held?", "room: number, held, consumer"))

    assert generate_scripts.main(["--check"], root) == 1
    assert capsys.readouterr().err.startswith("reliq/lua/claim.lua, reliq/ops/signatures.py")


@pytest.mark.parametrize(
    ("keys", "arguments", "code", "block"),
    [
        ("a, b", "none", "return a .. b", "local a, b = KEYS[1], KEYS[2]"),
        ("a, b", "none", "return b", "local b = KEYS[2]"),
        ("a", "n: number, on: flag", "return on and n", "local n, on = tonumber(ARGV[1]), ARGV[2] == '1'"),
        ("places, a", "none", "return places(PLACES), a", "local a = KEYS[14]\nlocal PLACES = 1"),
        ("a?", "n, ids...", "return unpack(ARGV, IDS)", "local IDS = 2"),
        (
            "a",
            "n,\n--       notes... [id, value]",
            "for at = NOTES, #ARGV, NOTES_STEP do add(ARGV[at + VALUE]) end",
            "local NOTES, NOTES_STEP, VALUE = 2, 2, 1",
        ),
        ("a", "n", "return 1 -- a comment about n", ""),
    ],
    ids=["keys", "only what is used", "kinds", "a group", "the rest", "records", "not in a comment"],
)
def test_the_names_of_a_header_become_locals(tmp_path, keys, arguments, code, block):
    assert written(tmp_path, keys, arguments, code) == block


@pytest.mark.parametrize(
    ("keys", "arguments", "code", "error"),
    [
        ("a", "n", "return ARGV[1]", "has the number of a key or argument"),
        ("a", "a", "return a", "twice, or they are reserved: a"),
        ("until", "n", "return n", "twice, or they are reserved: until"),
        ("a", "n: text", "return n", "'n: text' is not a name"),
        ("a", "ids... [x, y], more... [y, x]", "return X", "Y would stand for 1 and for 0"),
        ("ids..., a", "n", "return a", "a stands after the rest, and has no number"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused(tmp_path, keys, arguments, code, error):
    with pytest.raises(generate_scripts.Wrong, match=re.escape(error)):
        written(tmp_path, keys, arguments, code)


def test_a_name_of_a_shared_file_is_refused(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/place.lua").write_text("local function enter(q)\nend\n")
    with pytest.raises(generate_scripts.Wrong, match="reserved: enter"):
        written(tmp_path, "enter", "n", "-- uses: place\nreturn enter")
