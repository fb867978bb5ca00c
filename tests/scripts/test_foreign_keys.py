"""A key of a foreign type: every script refuses it before it has written anything."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

from reliq import ops
from reliq.contract.keys import described
from reliq.errors import RedisUnsuitable
from reliq.model.breaker import Breaker
from reliq.model.element import Extra, group_of, latest_group_of
from reliq.model.instruction import Instruction
from reliq.model.keys import QueueKeys
from reliq.model.life import Report
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.model.partitions import bitmap
from reliq.ops import Destination, Entry, Move, Return, Revival
from reliq.ops.coming import Coming
from reliq.ops.held import Hold
from reliq.transport.store import Store
from tests.support.scripts import scripts
from tests.support.state import HOUR, KEYS, World, element, elements, keyed

DAY = 86_400.0
OTHER = QueueKeys("other")
ENTRY = Entry("n", keyed("n", "k"), 0.0, "dedup", 60.0, "digest")
NEWEST = Entry("n", element("n", extra=Extra(group=latest_group_of("x"))), 5.0, "x", 0.0, replace=True, at_most=9.0)


def settle() -> ops.Op:
    moves = [
        Move(keyed("a", "k"), Destination.DELAYED, "retried", "a", keyed("a2", "k"), 60.0),
        Move(element("b"), Destination.DONE, "acked", "b", mark=ops.Mark(KEYS.done("b"), 60.0)),
        Move(element("d"), Destination.TAIL, "released", "d", element("d2"), started=False),
    ]
    return ops.settle(KEYS, "w", 15.0, elements("c"), moves, limit=2)


def reclaim() -> ops.Op:
    return ops.reclaim_when_full(KEYS, "gone", "", [Return(keyed("y", "l"), ops.Fate.UNREADABLE, "y", element("y2"))])


#: One call of each script, which uses every key that it is given.
CALLS: dict[str, Callable[[], ops.Op | ops.Transaction]] = {
    "advance_within": lambda: ops.advance_within(KEYS, keyed("a", "k"), ops.Fate.EXHAUSTED),
    "allow": lambda: ops.allow("key", 10.0, 1),
    "announce": lambda: ops.announce("new"),
    "arrive": lambda: ops.arrive([KEYS, OTHER], [b"reference"], "producer", 1),
    "put_notes": lambda: ops.put_notes(KEYS, Coming("y", KEYS.dedup("brought")), [b"state", b"half"], b"1"),
    "attend": lambda: ops.attend("0", "monitor", 1.2, 8),
    "cancel": lambda: ops.cancel(KEYS, "d", KEYS.call("once")),
    "breaker": lambda: ops.breaker(KEYS, Breaker(minimum=1), 0, 5, ""),
    "claim_limited": lambda: ops.claim_limited(KEYS, "w", 15.0, 3, 1000, reports=True, suspect="gone"),
    "hold_key": lambda: ops.hold_key(KEYS, group_of("k"), 1.0),
    "hold": lambda: ops.hold(KEYS, 1.0),
    "switch_breaker": lambda: ops.switch_breaker(KEYS, 60.0),
    "claim": lambda: ops.claim(KEYS, "w", 15.0, 3),
    "discard": lambda: ops.discard(KEYS, [(element("x"), "x", b"reference")], "purged_dead"),
    "browse": lambda: ops.browse(KEYS.dead, "up", "-inf", "+inf", 10),
    "due": lambda: ops.due([KEYS], 60.0),
    "find": lambda: ops.find(KEYS, KEYS.dead, "x", 0, None),
    "upcoming": lambda: ops.upcoming(KEYS.messages, 0, 10, 0),
    "enqueue": lambda: ops.enqueue(KEYS, elements("m"), [ENTRY, NEWEST], "producer", 1),
    "forget": lambda: ops.forget(KEYS, "idle", leaving=True, settled_for=60.0),
    "hasten": lambda: ops.hasten(KEYS, ["x"]),
    "heartbeat": lambda: ops.heartbeat(KEYS, "w", 15.0),
    "promote": lambda: ops.promote(KEYS, 10),
    "purge": lambda: ops.purge(KEYS, 100),
    "push_keyed": lambda: ops.push_keyed(KEYS, [ENTRY], "producer", 1, 0, ordered=True),
    "push": lambda: ops.push(KEYS, elements("n"), "producer", 1, 0, bodies=True),
    "reclaim_when_full": reclaim,
    "redrive": lambda: ops.redrive(KEYS, [Revival(element("x"), "x", element("x2"))]),
    "register": lambda: ops.register(KEYS, "new", 15.0),
    "describe": lambda: ops.describe(KEYS, "w", b"{}"),
    "settle": settle,
    "starts": lambda: ops.starts(KEYS, [b"reference"], 10),
    "instruct": lambda: ops.instruct(KEYS, "w", Instruction.PAUSE, 1),
    "report": lambda: ops.report(Hold(KEYS, "w", Message.decode("q", element("a"))), Report(0.5)),
    "set_policy": lambda: ops.set_policy(KEYS, ["paused", 1]),
    "end_change": lambda: ops.end_change(KEYS, "token"),
    "exchange_policy": lambda: ops.exchange_policy(KEYS, {"rate": None}, {"rate": "1/s"}),
    "replace_layout": lambda: ops.replace_layout(KEYS, None, "{}"),
    "drop_counters": lambda: ops.drop_counters(KEYS, {"enqueued": "1"}),
    "stats": lambda: ops.stats(KEYS, ["w"]),
    "newest": lambda: ops.newest(KEYS, "w", [group_of("k")]),
    "serve": lambda: ops.serve(KEYS, "w", 3.5),
    "strays": lambda: ops.strays(KEYS, b"", 10),
    "send_home": lambda: ops.send_home(
        KEYS, [ops.Stray(group_of("k").encode() + b"~000000000000001" + keyed("a", "k"))]
    ),
    "withdraw": lambda: ops.withdraw(
        KEYS, [ops.Stray(group_of("k").encode() + b"~000000000000001" + keyed("a", "k"))], "purged"
    ),
    "take_in": lambda: ops.take_in(KEYS, ops.OwnedBuckets(bitmap(()), 1), retired=True),
    "held_keys": lambda: ops.held_keys(KEYS),
    "release_lines": lambda: ops.release_lines(KEYS, [group_of("k")], 1),
    "stay": lambda: ops.stay(KEYS, [ops.Stray(f"{group_of('k')}~{1:015d}".encode() + element("a"))], 1),
    "mark_tried": lambda: ops.mark_tried(KEYS, "w", "a 1"),
    "tally": lambda: ops.tally(KEYS, ["w", "gone"], "w", begins=True, ends=True),
    "lead": lambda: ops.lead(KEYS, "w", 1.0),
}
SLICES = [
    import_module(f"tests.features.{path.parent.name}.scripts")
    for path in sorted((Path(__file__).parents[1] / "features").glob("*/scripts.py"))
]
for one in SLICES:
    CALLS |= one.CALLS

#: Keys that the call above leaves alone, so that it may pass: what is foreign there stays as it is.
UNTOUCHED = {
    ("claim", KEYS.consumers),
    ("receive_ready", KEYS.early),
    ("receive_ready", KEYS.bodies),
    ("push_keyed", KEYS.messages),
}
#: Scripts for queues in which nothing has to be looked at: elsewhere they do nothing.
PLAIN = ("push", "push_keyed", "receive_ready", "delete_flying")


def keys_of(call: ops.Op | ops.Transaction) -> tuple[Any, ...]:
    script = call.ops[-1] if isinstance(call, ops.Transaction) else call
    _, _, count, *arguments = script.command
    return tuple(arguments[: int(cast("int", count))])


CASES = [(name, key) for name, call in CALLS.items() for key in keys_of(call())]


def test_every_script_is_called():
    every = {path.stem for path in scripts().values()}
    assert set(CALLS) == every - {"existing"}  # EXISTS takes any type, and nothing is changed


def a_queue_with_everything(world: World) -> None:
    """Every key of the queue exists, and every message that a call names is where the call expects it."""
    entries = [Entry(name, keyed(name, "k"), 0.0, None, 0.0) for name in ("a", "e")]  # e waits for a
    world.run(ops.enqueue(KEYS, elements("b", "c"), entries))
    world.given(leases={"w": HOUR}, delayed={"d": -1000}, dead={"x": 0})
    world.run(ops.claim(KEYS, "w", DAY, 3))
    prior = [Entry(name, keyed(name, name, priority="high"), 0.0, None, 0.0) for name in ("f", "g")]
    world.run(ops.enqueue(KEYS, elements("h"), prior))
    world.redis.lpush(KEYS.low, element("l"))
    world.redis.lpush(KEYS.next_round, element("r"))
    world.run(ops.enqueue(KEYS, [], [NEWEST]))
    world.redis.sadd(KEYS.consumers, "gone")  # without a lease
    world.redis.lpush(KEYS.processing("gone"), keyed("y", "l"))
    world.redis.hset(KEYS.config, "concurrency", 100)
    for slice_ in SLICES:
        slice_.given(world)


def make_plain(world: World) -> None:
    """Leave the queue no settings and no cycle; the next message is one that a producer has sent."""
    world.redis.delete(KEYS.config, KEYS.cycle, KEYS.early)
    world.redis.rpush(KEYS.messages, NewMessage("x", key="k3").element(world.now))


def kind_of(key: str) -> str:
    entry = described(key)
    assert entry is not None, f"{key} is not in reliq.contract.keys"
    return entry.kind


def everything(world: World) -> dict[bytes, bytes]:
    names = world.redis.keys("*")
    with world.redis.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.dump(name)
        return dict(zip(names, pipeline.execute(), strict=True))


_RESTORE = "for place, key in ipairs(KEYS) do redis.call('RESTORE', key, 0, ARGV[place]) end"
_CONTENTS = """
local found = {}
for place, key in ipairs(redis.call('KEYS', '*')) do
  local is_hash = redis.call('TYPE', key)['ok'] == 'hash'
  found[place] = {key, redis.call(is_hash and 'HGETALL' or 'DUMP', key)}
end
return found
"""


def contents(world: World) -> dict[bytes, object]:
    """All keys; of a hash its fields, whose order in a DUMP changes while Redis moves them to a larger table.

    Asked for in one call, two thousand times in all.
    """
    found = world.redis.eval(_CONTENTS, 0)
    return {
        key: value if isinstance(value, bytes) else dict(zip(*[iter(value)] * 2, strict=True)) for key, value in found
    }


_MADE: dict[bytes, bytes] = {}  #: what is in the queue with everything, since it was made first


@pytest.fixture
def full(world: World) -> World:
    if not _MADE:
        a_queue_with_everything(world)
        _MADE.update(everything(world))
    else:
        world.redis.eval(_RESTORE, len(_MADE), *_MADE, *_MADE.values())
    return world


@pytest.mark.parametrize(("name", "key"), CASES)
def test_a_key_of_a_foreign_type_is_refused_before_the_first_write(full, name, key):
    if name in PLAIN:
        make_plain(full)
    elif name != "forget_tracked":  # it deletes what such a queue had
        for keys in (KEYS, OTHER):
            full.redis.hset(keys.config, mapping={"track": 1, "history": 3600})
    full.redis.delete(key)
    if kind_of(key) == "stream":
        full.redis.lpush(key, "a")
    else:
        full.redis.xadd(key, {"a": "stream"})
    before = contents(full)
    if (name, key) in UNTOUCHED:
        run(full.store, CALLS[name]())
        assert contents(full)[key.encode()] == before[key.encode()]
        return
    with pytest.raises(RedisUnsuitable, match="another type"):
        run(full.store, CALLS[name]())
    assert contents(full) == before


def run(store: Store, call: ops.Op | ops.Transaction) -> None:
    def steps() -> ops.Steps[None]:
        yield call

    store.run(steps())


@pytest.mark.parametrize("name", sorted(CALLS))
def test_without_a_foreign_key_the_same_calls_pass(full, name):
    run(full.store, CALLS[name]())
    kinds = {key.decode(): full.redis.type(key).decode() for key in full.redis.keys("*")}
    there = {key: kind for key, kind in kinds.items() if kind != "none"}  # that of a debounce may expire meanwhile
    assert there == {key: kind_of(key) for key in there}
