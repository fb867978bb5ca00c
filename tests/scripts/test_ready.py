"""Scripts for queues in which nothing has to be looked at do what those for all queues do."""

import random
from typing import Any

import pytest

from reliq import ops
from reliq.errors import OutcomeUnknown
from reliq.features.receipts import ops as own
from reliq.features.receipts.model import FIRST_RECEIVED, LATEST_RECEIVED, ReceiveRequest
from reliq.features.receipts.ready import receive_ready
from reliq.features.receipts.receiving import HomeReceiver, _flying
from reliq.model.element import BLANK, decode_envelope, name_of, new_nonce
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.protocol.batch import Call
from reliq.protocol.producer import ProducerPool
from tests.support.state import KEYS, World, element

MINUTE = 60.0


def nonces(count: int) -> list[bytes]:
    return [new_nonce().to_bytes(8) for _ in range(count)]


def receive(world: World, limit: int = 10, most: int | None = None, runs: bool = True) -> own.Ready:
    found: own.Ready = world.run(own.receive_ready(KEYS, MINUTE, limit, most, nonces(limit), runs=runs))
    return found


def put(world: World, *elements: bytes) -> None:
    world.redis.lpush(KEYS.messages, *elements)


def sent(world: World, *messages: NewMessage) -> None:
    """Messages that producers have sent, each in its place."""
    call = Call.of(messages, world.now)
    world.run(ops.enqueue(KEYS, call.plain, call.entries))


class Kept:
    """What a queue has, to be had again."""

    def __init__(self, world: World) -> None:
        self._redis = world.redis
        self._values = {name: world.redis.dump(name) for name in world.redis.keys("*")}

    def restore(self) -> None:
        self._redis.flushall()
        for name, value in self._values.items():
            self._redis.restore(name, 0, value)


def raw(world: World) -> dict[bytes, Any]:
    """Everything the queue has, but for the moments of calls."""
    read = {
        b"list": lambda key: world.redis.lrange(key, 0, -1),
        b"zset": lambda key: world.redis.zrange(key, 0, -1),
        b"hash": world.redis.hgetall,
        b"set": world.redis.smembers,
        b"string": world.redis.get,
    }
    ignored = {KEYS.producers.encode()}
    return {key: read[world.redis.type(key)](key) for key in world.redis.keys("*") if key not in ignored}


#: Options of messages that may be received at once.
OPTIONS = [
    {}, {"ttl": 60.0}, {"headers": {"a": "b"}}, {"headers": {str(at): "x" * at * 20 for at in range(12)}, "ttl": 9.0},
    {"key": "k"}, {"key": "k", "headers": {"ä": "ö" * 200}, "ttl": 60.0}, {"id": "a" * 128}, {"id": "i" * 31},
    {"priority": "low", "ttl": 5}, {"cost": 7}, {"limit_key": "l"},
]  # fmt: skip


@pytest.mark.parametrize("size", [0, 200, 1000])
@pytest.mark.parametrize("options", OPTIONS)
def test_an_element_is_written_as_python_writes_it(world: World, options: dict[str, Any], size: int):
    before = NewMessage(b"\xa5" * size, **options).element(world.now)
    for _ in range(3):
        world.redis.rpush(KEYS.messages, before)
        (again,) = receive(world, limit=1).elements
        headers = decode_envelope(again).headers
        told = int(headers.get(LATEST_RECEIVED, headers[FIRST_RECEIVED]))
        expected = _flying(Message.decode("q", before), told)
        assert again == name_of(again) + expected.element[len(name_of(again)) :]
        world.redis.delete(KEYS.receipts, KEYS.received, KEYS.active)
        before = again


def left_to_a_claim(world: World) -> list[tuple[str, bytes]]:
    fresh, now = NewMessage("x"), world.now
    raw_of = fresh.element(now)
    received = {"a": "b", FIRST_RECEIVED: "1"}
    return [
        ("expired", NewMessage("x", ttl=1.0).element(now - 5000)),
        ("received often", Message.decode("q", raw_of).again(deliveries=2, failures=3)),
        ("held by a consumer that died", Message.decode("q", raw_of).again(redelivered=True)),
        ("cancelled", BLANK),
        ("no element", b"\x9a\x01"),
        ("cut off", raw_of[:-5]),
        ("an unusual nonce", element("a")),
        ("many headers", NewMessage("x", headers={str(at): "" for at in range(15)}).element(now)),
        ("received by another version", NewMessage("x", headers=received).element(now)),
        ("the latest wins", NewMessage("x", dedup_key="d", replace=True).element(now)),
        ("its body is lost", Call.of([NewMessage("x" * 5000)], now).plain[0]),
    ]


@pytest.mark.parametrize("at", range(11))
def test_what_has_to_be_looked_at_is_left_to_a_claim(world: World, at: int):
    _, raw_of = left_to_a_claim(world)[at]
    put(world, NewMessage("first").element(world.now), raw_of, NewMessage("last").element(world.now))
    ready = receive(world, most=5)
    assert (ready.rest, [Message.decode("q", one).body for one in ready.elements]) == ("claim", [b"first"])
    before = raw(world)
    assert receive(world, most=5) == own.Ready("claim", 1, [])
    assert raw(world) == before


@pytest.mark.parametrize("setting", ["limited", "history", "prioritised", "round"])
def test_a_queue_that_looks_at_each_message_is_left_to_a_claim(world: World, setting: str):
    put(world, NewMessage("x").element(world.now))
    world.redis.hset(KEYS.config, setting, 1)
    assert receive(world) == own.Ready("claim", 0, [])


def test_a_paused_queue_gives_nothing(world: World):
    put(world, NewMessage("x").element(world.now))
    world.redis.hset(KEYS.config, "paused", 1)
    assert receive(world) == own.Ready("", 0, [])


def test_another_message_with_the_same_id_has_a_flight_of_its_own(world: World):
    put(world, *[NewMessage(text, id="one").element(world.now) for text in "abc"])
    elements = [*receive(world, limit=2).elements, *receive(world).elements]
    assert set(world.redis.hkeys(KEYS.receipts)) == {b"one", *map(name_of, elements[1:])}
    codes = world.run(own.delete_received(KEYS, [(name_of(one), "") for one in elements], late=False))
    assert codes == "ddd"


def test_a_receive_takes_no_more_bytes_than_its_limit(world: World):
    put(world, *[NewMessage("x" * 900).element(world.now) for _ in range(10)])
    call = own.receive_ready(KEYS, MINUTE, 10, None, nonces(10), runs=False)
    place = call.command.index(8 * 1024 * 1024)
    few = ops.Op((*call.command[:place], 2000, *call.command[place + 1 :]), call.read, call.script)
    assert len(world.run(few).elements) == 3


def history(world: World, chance: random.Random) -> None:
    """A queue as receivers and producers leave it."""
    for number in range(chance.randint(1, 12)):
        key = chance.choice(("a", "a", "b", "b", None))
        sent(world, NewMessage(b"x" * chance.choice((1, 5)), id=f"m{number}", ttl=60.0, key=key))
    for _ in range(chance.randint(0, 3)):
        elements = receive(world, chance.choice((1, 2, 5)), runs=chance.random() < 0.6).elements
        for one in elements:
            if chance.random() < 0.3:
                group = Message.decode("q", one).group
                world.run(own.set_visibility(KEYS, [(name_of(one), 0.0, group)]))
    if chance.random() < 0.2 and (due := world.redis.zrange(KEYS.received, 0, 0)):
        world.redis.zadd(KEYS.received, {due[0]: 1})


@pytest.mark.parametrize("seed", range(60))
def test_a_delete_does_what_the_one_for_all_queues_does(world: World, seed: int):
    chance = random.Random(seed)
    history(world, chance)
    records = [record[own.TURN :] for record in world.redis.hvals(KEYS.receipts)]
    some = chance.sample(records, chance.randint(0, len(records))) or [NewMessage("gone").element(world.now)]
    late, kept = chance.random() < 0.5, Kept(world)
    before = raw(world)
    done = world.run(own.delete_flying(KEYS, [name_of(one) for one in some], late))
    after = raw(world)
    if not done:
        assert after == before
        return
    kept.restore()
    handles = [(name_of(one), "") for one in some]
    assert world.run(own.delete_received(KEYS, handles, late)) == "d" * len(some)
    assert raw(world) == after


@pytest.mark.parametrize("seed", range(40))
def test_a_receive_does_what_a_claim_does(world: World, seed: int):
    chance = random.Random(seed)
    history(world, chance)
    limit, runs, kept = chance.choice((1, 3, 10)), chance.random() < 0.7, Kept(world)
    ready = receive(world, limit, runs=runs)
    flying = sorted(Message.decode("q", record[own.TURN :]).id for record in world.redis.hvals(KEYS.receipts))
    active, counters = world.redis.hgetall(KEYS.active), world.redis.hget(KEYS.counters, "claimed")
    if len(ready.elements) < limit or not runs:  # else the other one may take longer or shorter runs
        kept.restore()
        world.run(ops.announce("q"))
        world.run(ops.register(KEYS, "w", MINUTE))
        receiver = HomeReceiver(KEYS, ProducerPool())
        received = world.store.run(receiver.claimed(ReceiveRequest(len(ready.elements) or 1, MINUTE, runs=runs), 0.0))
        if not ready.rest:
            assert [one.message.id for one in received] == [Message.decode("q", one).id for one in ready.elements]
            assert flying == sorted(
                Message.decode("q", record[own.TURN :]).id for record in world.redis.hvals(KEYS.receipts)
            )
            assert world.redis.hgetall(KEYS.active) == active
            assert world.redis.hget(KEYS.counters, "claimed") == counters


def pushed(world: World, call: Call, sequence: int) -> ops.Enqueued | None:
    """Push messages with keys, after their bodies."""
    return with_its_bodies(world, call, sequence, ops.push_keyed(KEYS, call.entries, "p", sequence, 1, call.ordered))


def with_its_bodies(world: World, call: Call, sequence: int, op: ops.Op[Any]) -> Any:
    if not call.bodies:
        return world.run(op)
    return world.run(ops.with_bodies([KEYS], call.bodies, "p", sequence, op))[-1]


@pytest.mark.parametrize("size", [1, 2000])
@pytest.mark.parametrize("seed", range(40))
def test_a_push_of_messages_with_keys_does_what_enqueue_does(world: World, seed: int, size: int):
    chance = random.Random(seed)
    history(world, chance)
    ordered, deduplicated = chance.choice([(True, True), (True, False), (False, True)])
    for sequence in range(1, 4):
        messages = [
            NewMessage(
                chance.choice("xy") * size,
                id=f"n{sequence}-{at}",
                key=chance.choice("abc") if ordered else None,
                dedup_key=chance.choice("defgh") if deduplicated else None,
                window=60.0,
            )
            for at in range(chance.randint(1, 6))
        ]
        call, kept = Call.of(messages, world.now), Kept(world)
        assert call.keyed
        answer = pushed(world, call, sequence)
        assert answer is not None
        after = raw(world)
        again = pushed(world, call, sequence)
        assert (again, raw(world)) == (answer, after)
        kept.restore()
        expected = with_its_bodies(world, call, sequence, ops.enqueue(KEYS, (), call.entries, "p", sequence))
        assert (answer.first_ids, answer.conflicts) == (expected.first_ids, expected.conflicts)
        assert raw(world) == after


@pytest.mark.parametrize("setting", ["max_length", "max_bytes", "track", "history", "flowing", "homes"])
@pytest.mark.parametrize("size", [1, 2000])
def test_a_push_of_messages_with_keys_is_left_to_enqueue(world: World, setting: str, size: int):
    world.redis.hset(KEYS.config, setting, 9)
    before = raw(world)
    assert pushed(world, Call.of([NewMessage("x" * size, key="k")], world.now), 1) is None
    assert raw(world) == before


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 5},
        {"priority": "high"},
        {"cost": 2},
        {"limit_key": "k"},
        {"limit_key": "k", "dedup_key": "d"},
        {"dedup_key": "d", "replace": True},
        {"key": "k", "priority": "low"},
    ],
)
def test_other_options_are_left_to_enqueue(options: dict[str, Any]):
    assert not Call.of([NewMessage("x", **options)], 1).keyed


def test_keys_of_two_kinds_are_left_to_enqueue():
    of_one, of_both = NewMessage("x", key="k"), NewMessage("x", key="k", dedup_key="d")
    assert not Call.of([of_one, of_both], 1).keyed
    assert not Call.of([NewMessage("x", dedup_key="d"), of_both], 1).keyed
    assert not Call.of([of_one, NewMessage("x")], 1).keyed
    assert not Call.of([NewMessage("x")], 1).keyed


def test_a_thousand_keys_become_a_table_that_has_them_all(world: World):
    messages = [NewMessage("x", key=str(at % 700)) for at in range(1000)]
    call = Call.of(messages, world.now)
    pushed(world, call, 1)
    active = world.redis.hgetall(KEYS.active)
    world.redis.flushall()
    world.run(ops.enqueue(KEYS, (), call.entries, "p", 1))
    assert world.redis.hgetall(KEYS.active) == active
    assert sorted(active.values()) == sorted(one.id.encode() for one in messages[:700])


def answered(world: World, steps: ops.Steps[Any], request: Any) -> Any:
    """Run steps from this request on; return what they return."""
    try:
        while True:
            request = steps.send(world.run(request))
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize("carried_out", [True, False])
def test_after_a_lost_answer_a_receive_looks_what_it_did(world: World, carried_out):
    sent(world, NewMessage("before"))
    receive(world)
    sent(world, NewMessage("a", id="z", key="k"), NewMessage("b", id="y", key="k"))
    steps = receive_ready(KEYS, ReceiveRequest(10, MINUTE, runs=True))
    request: Any = next(steps)
    if carried_out:
        world.run(request)
    found, ready = answered(world, steps, steps.throw(OutcomeUnknown("no answer")))
    assert ([one.body for one in found], ready.rest) == (([b"a", b"b"], "") if carried_out else ([], "claim"))
    assert ready.in_flight == (3 if carried_out else 1)
