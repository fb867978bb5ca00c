"""The keys of a queue and of the server are those of the table."""

import inspect
import re
from pathlib import Path

import pytest

from reliq.contract.key_names import JobKeys
from reliq.contract.keys import QUEUE_KEYS, SERVER_KEYS, Key, described
from reliq.errors import InvalidName
from reliq.model import keys as names
from reliq.model.keys import SEVERAL, QueueKeys, check_name

ROOT = Path(__file__).resolve().parents[2]
KEYS = QueueKeys("orders")
TYPES = {"list", "zset", "hash", "set", "string", "stream"}


def key_of(entry: Key) -> str:
    there = getattr(KEYS, entry.called)
    return str(there(*entry.of) if entry.of else there)


def test_everything_is_every_key_of_the_queue_once():
    keys = [key_of(one) for one in QUEUE_KEYS if not one.of]
    assert sorted(KEYS.everything) == sorted(keys)
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("entry", [*QUEUE_KEYS, *SERVER_KEYS], ids=lambda one: one.shown)
def test_an_entry_says_what_the_key_holds(entry):
    assert entry.kind in TYPES
    assert entry.text
    assert not entry.text.endswith(".")


@pytest.mark.parametrize("entry", QUEUE_KEYS, ids=lambda one: one.shown)
def test_a_key_lies_in_the_slot_of_its_queue_and_is_known_by_its_name(entry):
    assert key_of(entry).startswith("reliq:{orders}:")
    assert described(key_of(entry)) is entry


@pytest.mark.parametrize("entry", QUEUE_KEYS, ids=lambda one: one.shown)
def test_a_key_goes_with_its_queue_or_with_its_consumer_or_by_itself(entry):
    if not entry.of:
        assert key_of(entry) in KEYS.everything
    elif entry.of != ("consumer",):
        assert key_of(entry).startswith(KEYS.lasting) or entry.expires


def test_each_method_that_returns_a_key_has_an_entry():
    methods = [
        name
        for one in (JobKeys, *QueueKeys.__mro__[:-1])
        for name, value in vars(one).items()
        if inspect.isfunction(value) and not name.startswith("_")
    ]
    unknown = [
        name
        for name in methods
        if described((method := getattr(KEYS, name))(*(["x"] * len(inspect.signature(method).parameters)))) is None
    ]
    assert unknown == []


def test_the_keys_of_the_server_are_spelled_as_in_the_table():
    constants = [value for value in vars(names).values() if isinstance(value, str) and value.startswith("reliq:")]
    spelled = [one + "an-id" if one.endswith(":") else one for one in constants]
    spelled += [names.monitors_until("0"), names.monitors_since("0"), names.batch_record("b"), names.flow_record("f")]
    assert {described(one) for one in spelled} == set(SERVER_KEYS)


def test_only_keys_of_jobs_lie_under_the_tag_of_several_queues():
    assert described(SEVERAL.job("j")) is described(KEYS.job("j"))
    assert described("reliq:{@several}:messages") is None


@pytest.mark.parametrize("key", ["reliq:{orders}:nothing", "reliq:{orders}:processing", "other", "reliq:queues:x"])
def test_a_key_that_reliq_does_not_write_has_no_entry(key):
    assert described(key) is None


def test_each_key_that_a_page_names_is_one_of_the_table():
    named = {
        (page.name, found)
        for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "reliq" / "lua" / "README.md"]
        for found in re.findall(r"reliq:\{\w+\}:[a-z_]+(?::<\w+>)*", page.read_text(encoding="utf-8"))
        if "monitor:" not in found
    }
    assert len(named) > 10
    assert [(page, key) for page, key in sorted(named) if described(key) is None] == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("orders@partition.1", "it is a partition; use the name of its queue, 'orders'"),
        ("orders@partition.eu", "@partition. belongs to the partitions of queues"),
        ("orders@partition.1234", "@partition. belongs to the partitions of queues"),
        ("orders@broadcast.c" + 20 * "0", "belongs to a broadcast"),
    ],
)
def test_a_name_that_has_another_meaning_is_refused(name, why):
    with pytest.raises(InvalidName, match=re.escape(why)):
        check_name(name)


@pytest.mark.parametrize("name", ["orders@broadcast.eu", "partition.1", "orders@eu", "reload.1@broadcast.abc"])
def test_a_name_that_only_resembles_one_is_that_of_a_queue(name):
    assert check_name(name) == name
