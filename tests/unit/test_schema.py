"""The names of hash fields in reliq.ops.schema and those that the scripts spell are the same."""

import re

import pytest

from reliq import ops
from reliq.contract.outcomes import REASONS
from reliq.contract.settings import BY_NAME
from reliq.ops import schema
from tests.support.scripts import FEATURES, LUA

#: How the scripts name a hash: the fields that it may have.
HASHES = {
    "counters": schema.Counter,
    "config": schema.Config,
    "topics": schema.Topics,
    "flow": schema.Flow,
    "job": schema.Job,
    "record": schema.Prepared,
    "report": schema.Report,
    "batch": schema.Batch,
    "graph": schema.FlowRecord,
    "outer": schema.FlowRecord,
    "parent": schema.Batch,
}
COMMAND = re.compile(r"redis\.call\('(H[A-Z]+)', ([\w.\[\]]+), ([^\n]*)\)")
LITERAL = re.compile(r"(?<!== )'([a-z_:]+)'")  #: not what something is compared with


def fields(names: type) -> set[str]:
    return {value for name, value in vars(names).items() if name.isupper()}


def spelled() -> list[tuple[str, str, list[str]]]:
    """Return what the scripts ask of each hash: the command, the hash, and the fields that are spelled there."""
    asked = []
    for path in sorted([*LUA.rglob("*.lua"), *FEATURES.rglob("*.lua")]):
        for command, name, rest in COMMAND.findall(path.read_text(encoding="utf-8")):
            words = re.split(r",\s*", rest)
            places = words[::2] if command == "HSET" else words[:1] if command == "HINCRBY" else words
            found = [one for word in places for one in LITERAL.findall(word)]
            asked.append((f"{path.relative_to(LUA.parent)}: {command} {name}", name.rpartition(".")[2], found))
    return asked


def allowed(name: str) -> set[str]:
    """The fields that a script may spell; none of a hash that reliq.ops.schema does not have."""
    if name not in HASHES:
        return set()
    return fields(HASHES[name]) | (
        {schema.Counter.dead(reason) for reason in REASONS} if HASHES[name] is schema.Counter else set()
    )


def test_scripts_spell_fields_that_the_schema_has():
    asked = spelled()
    assert len(asked) > 400
    assert [(where, strange) for where, name, found in asked if (strange := {*found} - allowed(name))] == []


@pytest.mark.parametrize("names", list(HASHES.values()), ids=lambda one: one.__name__)
def test_no_field_has_two_names(names):
    values = [value for name, value in vars(names).items() if name.isupper()]
    assert len(set(values)) == len(values)


def test_every_setting_is_a_field_of_the_config():
    assert set(BY_NAME) < fields(schema.Config)


@pytest.mark.parametrize("script", sorted(path.stem for path in LUA.glob("*.lua")))
def test_every_script_has_its_op_of_the_same_name(script):
    assert callable(getattr(ops, script))
