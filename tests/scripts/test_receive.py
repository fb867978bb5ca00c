"""Messages in flight: each is invisible for a time of its own, an ordering key as long as one of its messages is."""

from dataclasses import replace

import pytest

from reliq.features.receipts import ops as own
from reliq.features.receipts.ops import Flight
from reliq.model.element import group_of
from reliq.model.keys import dedup_digest
from tests.support.state import KEYS, World, element, keyed
from tests.support.state import name_of as shown

GROUP = group_of("k")
MINUTE = 60.0


def flying(world: World) -> dict[str, int]:
    """The messages in flight, with the seconds for which they stay there, of which a busy machine adds some to 60."""
    records = world.redis.hgetall(KEYS.receipts)
    scores = dict(world.redis.zrange(KEYS.received, 0, -1, withscores=True))
    assert records.keys() == scores.keys()
    minutes = {name: int(score - world.now) // 60_000 for name, score in scores.items()}
    return {shown(record[16:]): minutes[name] * 60 for name, record in records.items()}


def state(world: World) -> dict[str, object]:
    """The queue without what describes its flights, which `flying` shows."""
    return {key: there for key, there in world.state().items() if key != "receipts"}


def flight(name: str, key: str = "", line: bytes = b"") -> Flight:
    """The message of this name, which gets the nonce behind its own."""
    made = (lambda one: keyed(one, key)) if key else element
    return Flight(made(name), made(f"{name}2"), line)


def due(world: World, *names: str) -> None:
    world.redis.zadd(KEYS.received, {name.rstrip("23"): 1 for name in names})


@pytest.fixture
def held(world: World) -> World:
    """A consumer has claimed two messages of three."""
    world.given(messages="c", processing={"w": "b a"}, leases={"w": 30_000})
    return world


def test_what_was_claimed_goes_into_flight_and_stays_there_for_its_time(held: World):
    assert held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None)) == ("dd", 2)
    assert flying(held) == {"a2": 60, "b2": 60}
    assert state(held) == {"messages": "c", "consumers": {"w"}, "lease:w": "alive"}


def test_a_repeated_receive_does_nothing_and_says_the_same(held: World):
    call = own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None)
    assert [held.run(call), held.run(call)] == [("dd", 2), ("dd", 2)]
    assert flying(held) == {"a2": 60, "b2": 60}


def test_what_the_consumer_does_not_hold_any_more_is_left_out(held: World):
    assert held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("z")], None)) == ("dn", 1)
    assert flying(held) == {"a2": 60}


def test_a_message_in_flight_is_deleted_once(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    handles = [(flight("a").name, ""), (flight("z").name, "")]
    assert held.run(own.delete_received(KEYS, handles, late=False)) == "du"
    assert held.run(own.delete_received(KEYS, handles, late=True)) == "uu"
    assert flying(held) == {"b2": 60}
    assert state(held)["counters"] == {"acked": 1}


def test_a_message_is_ready_again_after_its_time(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    due(held, "a2")
    returned, next_due, _ = held.run(own.return_due(KEYS, 10))
    assert returned == 1
    assert 0 < next_due <= 60_000
    assert flying(held) == {"b2": 60}
    assert state(held)["messages"] == "c a2"
    assert state(held)["counters"] == {"returned": 1}


def test_messages_that_are_ready_again_come_in_order_before_those_never_received(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    due(held, "a2", "b2")
    held.run(own.return_due(KEYS, 10))
    assert state(held)["messages"] == "c b2 a2"


def test_at_most_so_many_return_at_once(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    due(held, "a2", "b2")
    assert held.run(own.return_due(KEYS, 1))[0] == 1
    assert len(flying(held)) == 1


def test_the_time_of_each_message_changes_alone(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    changes = [(flight("a").name, 300.0, ""), (flight("b").name, 0.0, ""), (flight("z").name, 5.0, "")]
    assert held.run(own.set_visibility(KEYS, changes)) == "ddu"
    assert flying(held) == {"a2": 300}
    assert state(held)["messages"] == "c b2"


def test_the_time_of_a_message_that_is_ready_again_is_over(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    due(held, "a2")
    held.run(own.return_due(KEYS, 10))
    assert held.run(own.set_visibility(KEYS, [(flight("a").name, 300.0, "")], late=True)) == "e"
    assert flying(held) == {"b2": 60}


def test_a_time_that_is_over_is_not_prolonged_and_deletes_nothing_unless_late(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    due(held, "a2")
    assert held.run(own.set_visibility(KEYS, [(flight("a").name, 5.0, "")])) == "e"
    assert held.run(own.delete_received(KEYS, [(flight("a").name, "")], late=False)) == "e"
    assert held.run(own.delete_received(KEYS, [(flight("a").name, "")], late=True)) == "d"
    assert flying(held) == {"b2": 60}


@pytest.mark.parametrize("late", [False, True])
def test_a_message_that_is_ready_again_is_deleted_late_where_it_lies(held: World, late: bool):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    due(held, "a2")
    held.run(own.return_due(KEYS, 10))
    assert held.run(own.delete_received(KEYS, [(flight("a").name, "")], late)) == ("d" if late else "e")
    assert state(held)["messages"] == ("c \xc1cancelled" if late else "c a2")


def test_an_attempt_finds_its_messages_while_all_are_in_flight(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], "attempt"))
    assert [shown(one) for one in held.run(own.receive_again(KEYS, "attempt", 300.0))] == ["a2", "b2"]
    assert flying(held) == {"a2": 300, "b2": 300}
    assert held.run(own.receive_again(KEYS, "another", 300.0)) == []
    held.run(own.delete_received(KEYS, [(flight("a").name, "")], late=False))
    assert held.run(own.receive_again(KEYS, "attempt", 300.0)) == []


@pytest.mark.parametrize("repeats", [0, 2])
def test_an_attempt_does_not_give_out_what_was_extended_since(held: World, repeats: int):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], "attempt"))
    for _ in range(repeats):
        assert len(held.run(own.receive_again(KEYS, "attempt", MINUTE))) == 2
    held.run(own.set_visibility(KEYS, [(flight("a").name, 600.0, "")]))
    assert held.run(own.receive_again(KEYS, "attempt", MINUTE)) == []
    assert flying(held) == {"a2": 600, "b2": 60}


def test_an_attempt_of_an_earlier_version_finds_its_messages(held: World):
    """That wrote no times into its list. In a rolling upgrade an SDK may ask an endpoint of this version again."""
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], "attempt"))
    entries = KEYS.attempt_of(dedup_digest("attempt"))
    for place, name in enumerate("ab"):
        held.redis.lset(entries, place, b" " + flight(name).name)
    for _ in range(2):
        assert [shown(one) for one in held.run(own.receive_again(KEYS, "attempt", 300.0))] == ["a2", "b2"]
    assert flying(held) == {"a2": 300, "b2": 300}


def test_an_attempt_does_not_give_out_what_another_call_has_received_since(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], "attempt"))
    received_again(held)
    assert held.run(own.receive_again(KEYS, "attempt", 300.0)) == []
    assert flying(held) == {"a3": 60, "b2": 60}


def test_a_list_that_is_kept_has_the_messages_of_all_its_calls_in_order(held: World):
    for name in "ab":
        call = own.receive(KEYS, "w", MINUTE, [replace(flight(name), mark=b"x")], "batch", kept=300.0)
        assert [held.run(call)[0] for _ in range(2)] == ["d", "d"]
    names = [flight(name).name for name in "ab"]
    assert held.run(own.attempt_entries(KEYS, "batch", 0, 10)) == [b"x " + name for name in names]
    assert held.run(own.keep_received(KEYS, "batch", 900.0, 0, 1)) == (1, names[:1])
    assert flying(held) == {"a2": 900, "b2": 60}
    assert held.redis.ttl(KEYS.attempt_of(dedup_digest("batch"))) in (899, 900)


def test_what_is_due_is_kept_unless_another_call_has_received_it_since(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], "batch", kept=300.0))
    received_again(held)
    due(held, "b2")
    assert held.run(own.keep_received(KEYS, "batch", 900.0, 0, 10)) == (2, [flight("b").name])
    assert held.run(own.attempt_entries(KEYS, "batch", 0, 10)) == [b" " + flight("b").name]
    assert flying(held) == {"a3": 60, "b2": 900}


def test_a_purge_deletes_what_is_in_flight(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    assert held.run(own.purge_received(KEYS, 1)) == 1
    assert held.run(own.purge_received(KEYS, 10)) == 1
    assert flying(held) == {}
    assert state(held)["counters"] == {"purged": 2}


def received_again(world: World) -> None:
    """Message a was received again: a3 is in flight."""
    due(world, "a2")
    world.run(own.return_due(KEYS, 10))
    for _ in "ca":
        world.redis.rpoplpush(KEYS.messages, KEYS.processing("w"))
    assert world.run(own.receive(KEYS, "w", MINUTE, [Flight(element("a2"), element("a3"))], None))[0] == "d"


def test_a_former_receipt_is_of_no_use_but_late(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    received_again(held)
    former = flight("a").name
    assert held.run(own.set_visibility(KEYS, [(former, 300.0, "")])) == "u"
    assert held.run(own.delete_received(KEYS, [(former, "")], late=False)) == "e"
    assert held.run(own.delete_received(KEYS, [(former, "")], late=True)) == "u"
    assert held.run(own.set_visibility(KEYS, [(former, 300.0, "")], late=True)) == "d"
    assert flying(held) == {"a3": 300, "b2": 60}
    due(held, "a3")
    assert held.run(own.delete_received(KEYS, [(former, "")], late=True)) == "d"
    assert flying(held) == {"b2": 60}


def test_messages_with_the_same_id_fly_beside_each_other(held: World):
    held.redis.rpush(KEYS.processing("w"), element("a7"))
    twin = Flight(element("a7"), element("a8"))
    assert held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), twin], None)) == ("dd", 2)
    assert state(held)["processing:w"] == "b"
    assert held.run(own.set_visibility(KEYS, [(twin.name, 300.0, "")])) == "d"
    assert held.run(own.delete_received(KEYS, [(flight("a").name, "")], late=False)) == "d"
    assert flying(held) == {"a8": 300}
    assert held.run(own.delete_received(KEYS, [(twin.name, "")], late=False)) == "d"
    assert flying(held) == {}


def test_a_cancelled_message_does_not_come_back(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    assert [held.run(own.cancel_received(KEYS, "a", KEYS.new_call())) for _ in range(2)] == [1, 0]
    assert flying(held) == {"b2": 60}
    assert state(held)["counters"] == {"cancelled": 1}


def test_a_repeated_cancellation_has_the_answer_of_the_first(held: World):
    held.run(own.receive(KEYS, "w", MINUTE, [flight("a"), flight("b")], None))
    cancellation = own.cancel_received(KEYS, "a", KEYS.new_call())
    assert [held.run(cancellation) for _ in range(2)] == [1, 1]
    assert state(held)["counters"] == {"cancelled": 1}


# --- ordering keys ---


@pytest.fixture
def lined(world: World) -> World:
    """A consumer has claimed the first message of a key, behind which three others wait."""
    world.given(processing={"w": ""}, leases={"w": 30_000})
    world.redis.rpush(KEYS.processing("w"), keyed("a", "k"))
    world.redis.hset(KEYS.active, GROUP, "a")
    for turn, name in enumerate("bcd", 1):
        world.redis.zadd(KEYS.waiting, {line(turn) + keyed(name, "k"): 0})
    return world


def turns(*numbers: int) -> str:
    return "".join(f"{one:016}" for one in numbers)


def line(turn: int) -> bytes:
    return f"{GROUP}{turn:016}".encode()


def run_of(world: World, *more: str) -> str:
    """Receive a with those of the others that are named."""
    waiting = [flight(name, "k", line("abcd".index(name))) for name in more]
    codes, _ = world.run(own.receive(KEYS, "w", MINUTE, [flight("a", "k"), *waiting], None))
    return codes


def test_messages_that_wait_go_into_flight_with_the_first_of_their_key(lined: World):
    assert run_of(lined, "b", "c") == "ddd"
    assert flying(lined) == {"a2": 60, "b2": 60, "c2": 60}
    assert state(lined)["waiting"] == "d"
    assert state(lined)["active"] == {GROUP: " " + turns(0, 1, 2)}
    assert state(lined)["counters"] == {"claimed": 2}


def test_a_key_with_many_messages_passes_on_when_the_last_one_is_deleted(world: World):
    many = [f"m{number:03}" for number in range(500)]
    world.given(processing={"w": ""}, leases={"w": 30_000})
    world.redis.rpush(KEYS.processing("w"), keyed(many[0], "k"))
    world.redis.hset(KEYS.active, GROUP, many[0])
    world.redis.zadd(KEYS.waiting, {line(turn) + keyed(name, "k"): 0 for turn, name in enumerate(many[1:], 1)})
    flights = [flight(name, "k", line(turn) if turn else b"") for turn, name in enumerate(many[:-1])]
    assert world.run(own.receive(KEYS, "w", MINUTE, flights, None)) == ("d" * 499, 499)
    assert state(world)["waiting"] == "m499"
    assert state(world)["active"] == {GROUP: " " + turns(*range(499))}
    handles = [(one.name, GROUP) for one in flights]
    assert world.run(own.delete_received(KEYS, handles[1:], late=False)) == "d" * 498
    assert state(world)["active"] == {GROUP: " " + turns(0)}
    assert world.run(own.delete_received(KEYS, handles[:1], late=False)) == "d"
    assert state(world)["messages"] == "m499"


def test_a_list_that_is_kept_goes_on_behind_its_latest_message_and_no_other_call_does(lined: World):
    def receive(*names: str, attempt: str | None = "batch") -> str:
        flights = [flight(name, "k", line("abcd".index(name)) if name != "a" else b"") for name in names]
        return lined.run(own.receive(KEYS, "w", MINUTE, flights, attempt, kept=MINUTE if attempt else 0.0))[0]

    assert receive("a", "b") == "dd"
    assert [receive("c", attempt=None), receive("c", attempt="other"), receive("d")] == ["n", "n", "n"]
    assert receive("c") == "d"
    lined.run(own.set_visibility(KEYS, [(flight("c", "k").name, 0.0, GROUP)]))
    assert receive("d") == "n"
    assert flying(lined) == {"a2": 60, "b2": 60}
    assert state(lined)["waiting"] == "c2 d"


def test_one_that_is_not_the_next_of_its_key_stays_in_line(lined: World):
    assert run_of(lined, "c") == "dn"
    assert state(lined)["waiting"] == "b c d"


def test_a_key_goes_on_when_none_of_its_messages_is_in_flight(lined: World):
    run_of(lined, "b")
    lined.run(own.delete_received(KEYS, [(flight("a", "k").name, GROUP)], late=False))
    assert state(lined)["active"] == {GROUP: " " + turns(1)}
    assert "messages" not in state(lined)
    lined.run(own.delete_received(KEYS, [(flight("b", "k").name, GROUP)], late=False))
    assert state(lined)["active"] == {GROUP: "c"}
    assert state(lined)["messages"] == "c"


def test_messages_return_to_their_places_in_line_in_any_order(lined: World):
    run_of(lined, "b", "c")
    for name in "cab":
        assert lined.run(own.set_visibility(KEYS, [(flight(name, "k").name, 0.0, GROUP)])) == "d"
    assert state(lined)["messages"] == "a2"
    assert state(lined)["waiting"] == "b2 c2 d"
    assert state(lined)["active"] == {GROUP: "a"}
    assert "early" not in state(lined)


def received_early(world: World, *names: str) -> str:
    """Receive messages again that wait in line."""
    flights = [
        Flight(keyed(f"{name}2" if name in "abc" else name, "k"), keyed(f"{name}3", "k"), line("abcd".index(name)))
        for name in names
    ]
    return world.run(own.receive(KEYS, "w", MINUTE, flights, None))[0]


def test_a_visible_message_before_those_in_flight_is_received_and_none_after_them(lined: World):
    run_of(lined, "b", "c")
    for name in "ac":
        lined.run(own.set_visibility(KEYS, [(flight(name, "k").name, 0.0, GROUP)]))
    assert lined.run(own.return_due(KEYS, 10))[2] == [GROUP.encode()]
    assert received_early(lined, "c") == "n"
    assert received_early(lined, "a", "c") == "dn"
    assert flying(lined) == {"a3": 60, "b2": 60}
    assert lined.run(own.return_due(KEYS, 10))[2] == []
    assert received_early(lined, "c") == "n"


def test_a_visible_message_may_be_received_when_those_before_it_are_deleted(lined: World):
    run_of(lined, "b", "c")
    lined.run(own.set_visibility(KEYS, [(flight("b", "k").name, 0.0, GROUP)]))
    assert lined.run(own.return_due(KEYS, 10))[2] == []
    lined.run(own.delete_received(KEYS, [(flight("a", "k").name, GROUP)], late=False))
    assert lined.run(own.return_due(KEYS, 10))[2] == [GROUP.encode()]
    lined.run(own.delete_received(KEYS, [(flight("c", "k").name, GROUP)], late=False))
    assert lined.run(own.return_due(KEYS, 10))[2] == []
    assert state(lined)["messages"] == "b2"


def test_the_receipt_of_a_message_that_waits_again_has_expired(lined: World):
    run_of(lined, "b", "c")
    for name in "ab":
        lined.run(own.set_visibility(KEYS, [(flight(name, "k").name, 0.0, GROUP)]))
    handles = [(flight(name, "k").name, GROUP) for name in "ab"]
    assert lined.run(own.delete_received(KEYS, handles, late=False)) == "ee"
    assert flying(lined) == {"c2": 60}


def test_the_last_one_deleted_frees_the_key(lined: World):
    lined.redis.delete(KEYS.waiting)
    run_of(lined)
    lined.run(own.delete_received(KEYS, [(flight("a", "k").name, GROUP)], late=False))
    assert state(lined) == {"consumers": {"w"}, "lease:w": "alive", "counters": {"acked": 1}}
