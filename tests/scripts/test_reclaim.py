"""reclaim: the monitor takes back what a vanished consumer held, in a transaction on watched keys."""

from types import SimpleNamespace

import pytest

from reliq import ops
from reliq.errors import ForeignKey, RedisUnavailable, RedisUnsuitable
from reliq.model.element import Extra, group_of
from reliq.model.keys import QueueKeys
from reliq.ops import Transaction
from reliq.transport.store import Store
from reliq_monitor.attempts import Attempts
from reliq_monitor.reclaim import BATCH, charge_deliveries, note_not_alone, reclaim, take_back, take_back_owner
from reliq_monitor.returns import Returns
from tests.support.proxy import Counting, Proxy, ignores_watch
from tests.support.state import HOUR, KEYS, World, element, elements

OVER = {"w": -1}


@pytest.fixture(autouse=True)
def nonces(monkeypatch):
    """Pushed again, message a is a9: the nonce a test can name."""
    monkeypatch.setattr("reliq.model.message.new_nonce", lambda: 9)


def one_batch():
    """The steps that return one batch of w's messages, once its lease has run out."""
    return reclaim(KEYS, "w", 5, known_dead=False, at_once=BATCH)


def between_look_and_transaction(store: Store, steps, action):
    """Run the steps, with `action` at the worst moment: after the monitor has looked, before it acts."""

    def interrupted():
        answer = None
        acted = False
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as stop:
                return stop.value
            if isinstance(request, Transaction) and request.ops and not acted:
                acted = True
                action()
            answer = yield request

    return store.run(interrupted())


def test_everything_goes_back_as_new_elements_oldest_first(world):
    world.given(messages="x", processing={"w": "c b a"}, leases=OVER)
    result = world.store.run(take_back(KEYS, "w"))
    assert (result.returned, result.died, result.conflicts) == (3, 0, 0)
    assert world.state() == {"messages": "c9 b9 a9 x", "counters": {"reclaimed": 3}}


def test_taking_back_twice_returns_messages_once(world):
    world.given(processing={"w": "a"}, leases=OVER)
    assert [world.store.run(take_back(KEYS, "w")).returned for _ in range(2)] == [1, 0]
    assert world.state() == {"messages": "a9", "counters": {"reclaimed": 1}}


def test_what_a_consumer_held_is_back_after_five_round_trips(world, redis_server):
    """Terms, WATCH, a look, the transaction, and the end of the consumer."""
    with Counting(redis_server.port) as proxy:
        store = Store(proxy.url)
        for _ in range(2):  # the second time the scripts are loaded
            world.given(processing={"w": "c b a"}, leases=OVER)
            before = proxy.trips
            store.run(take_back(KEYS, "w"))
        store.close()
    assert proxy.trips - before == 5


def test_a_living_consumer_is_left_alone(world):
    world.given(processing={"w": "a"}, leases={"w": HOUR})
    before = world.state()
    assert world.store.run(take_back(KEYS, "w")).moved
    assert world.state() == before


def test_a_consumer_known_to_be_dead_need_not_run_out_its_lease(world):
    world.given(processing={"w": "a"}, leases={"w": HOUR})
    assert world.store.run(take_back(KEYS, "w", known_dead=True)).returned == 1
    assert world.state() == {"messages": "a9", "counters": {"reclaimed": 1}}


def test_a_consumer_without_any_lease_is_dead(world):
    world.given(processing={"w": "a"})
    assert world.store.run(take_back(KEYS, "w")).returned == 1


def test_many_messages_go_back_in_bounded_transactions(world):
    held = [element("m", nonce=number) for number in range(1000, 1250)]
    world.given(leases=OVER)
    world.redis.rpush(KEYS.processing("w"), *held)
    assert world.store.run(take_back(KEYS, "w")).returned == 250
    assert world.redis.llen(KEYS.messages) == 250
    assert KEYS.processing("w").encode() not in world.redis.keys("*")


def test_an_ack_between_look_and_transaction_wins(world):
    world.given(processing={"w": "b a"}, leases=OVER)
    ack = ops.settle(KEYS, "w", 15.0, elements("a"))
    other = Store(world.store.where)
    result = between_look_and_transaction(world.store, one_batch(), lambda: other.call(ack))
    assert result.moved
    assert world.state() == {
        "processing:w": "b",
        "lease:w": "alive",
        "consumers": {"w"},
        "counters": {"acked": 1},
    }


def test_a_heartbeat_between_look_and_transaction_wins(world):
    world.given(processing={"w": "a"}, leases=OVER)
    beat = ops.heartbeat(KEYS, "w", 15.0)
    result = between_look_and_transaction(world.store, one_batch(), lambda: World(world.store.where).store.call(beat))
    assert result.moved
    assert world.state()["processing:w"] == "a"


def test_two_monitors_at_once_return_each_message_once(world):
    world.given(processing={"w": "b a"}, leases=OVER)
    other = Store(world.store.where)
    result = between_look_and_transaction(world.store, one_batch(), lambda: other.run(take_back(KEYS, "w")))
    assert result.moved
    assert world.state() == {"messages": "b9 a9", "counters": {"reclaimed": 2}}


def test_where_watch_is_not_honoured_the_compensation_takes_the_copy_back(world, redis_server):
    """The second line: ack between look and transaction, on a connection without the effect of WATCH."""
    world.given(messages="x", processing={"w": "b a"}, leases=OVER)
    ack = ops.settle(KEYS, "w", 15.0, elements("a"))
    with Proxy(redis_server.port, request=ignores_watch) as proxy:
        store = Store(proxy.url)
        result = between_look_and_transaction(store, one_batch(), lambda: world.store.call(ack))
        store.close()
    assert (result.returned, result.conflicts) == (1, 1)
    state = world.state()
    assert (state["messages"], state.get("processing:w")) == ("b9 x", None)
    assert state["counters"] == {"acked": 1, "reclaimed": 1, "reclaim_conflicts": 1}


def test_the_compensation_never_removes_a_copy_that_is_not_its_own(world, redis_server):
    """Two monitors without WATCH, one after the other at the worst moment: exactly one copy stays."""
    world.given(processing={"w": "a"}, leases=OVER)
    nonces = iter(range(100, 200))
    with Proxy(redis_server.port, request=ignores_watch) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setattr("reliq.model.message.new_nonce", lambda: next(nonces))
        one, two = Store(proxy.url), Store(proxy.url)
        between_look_and_transaction(one, one_batch(), lambda: two.run(one_batch()))
        one.close()
        two.close()
    assert len(world.state()["messages"].split()) == 1


def test_a_full_redis_still_returns_what_dead_workers_held(world):
    world.given(processing={"w": "b a"}, leases=OVER)
    world.fill()
    assert world.store.run(take_back(KEYS, "w")).returned == 2
    assert world.state() == {"messages": "b9 a9", "counters": {"reclaimed": 2}}


def test_a_consumer_that_moved_is_left_alone_when_redis_is_full(world):
    world.given(processing={"w": "a"}, leases=OVER)
    full = ops.reclaim_when_full(KEYS, "w", "12345", [ops.Return(element("a"), ops.Fate.READY, "a", element("a9"))])
    assert world.run(full) == -1
    assert world.state()["processing:w"] == "a"


def test_the_third_holder_that_vanishes_with_it_makes_a_dead_letter(world):
    world.given(leases=OVER)
    world.redis.rpush(KEYS.processing("w"), element("a", deliveries=2, redelivered=True))
    world.redis.hset(KEYS.config, "max_deliveries", 3)
    result = world.store.run(take_back(KEYS, "w"))
    assert (result.returned, result.died) == (0, 1)
    assert world.state() == {
        "dead": "a9",
        "index": {" a"},
        "config": {"max_deliveries": "3"},
        "counters": {"dead:max_deliveries": 1, "dead_lettered": 1},
    }


def test_bytes_that_are_no_element_go_to_the_dead_letters_raw(world):
    world.given(leases=OVER)
    world.redis.rpush(KEYS.processing("w"), b"\xc1 no element", element("a"))
    result = world.store.run(take_back(KEYS, "w"))
    assert (result.returned, result.died) == (1, 1)
    state = world.state()
    assert state["messages"] == "a9"
    assert state["counters"] == {"reclaimed": 1, "dead:decode": 1, "dead_lettered": 1}
    from reliq.model.message import Message

    (raw,) = world.redis.zrange(KEYS.dead, 0, -1)
    assert Message.decode("q", raw).body == b"\xc1 no element"


PLACES = ["high", "low", "waiting", "active", "cycle", "next_round", "rounds", "config"]


def everything(world):
    return {key: world.redis.dump(key) for key in world.redis.keys("*")}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", ["messages", "counters", "dead", "index", *PLACES])
def test_a_key_of_a_foreign_type_that_it_would_write_to_changes_nothing(world, name, full):
    """Redis goes on with a MULTI after a push that failed: the removal in front of it would lose the message."""
    extra = Extra(key="k", group=group_of("k"))
    dying = element("b", deliveries=4, redelivered=True, extra=extra)
    world.given(leases=OVER)
    world.redis.rpush(KEYS.processing("w"), element("a"), dying)
    world.redis.set(getattr(KEYS, name), "of another application")
    if full:
        world.fill()
    before = everything(world)
    with pytest.raises(RedisUnsuitable):
        world.store.run(one_batch())
    assert everything(world) == before


def test_the_error_names_the_key_its_type_and_what_to_do(world):
    world.given(processing={"w": "a"}, leases=OVER)
    world.redis.set(KEYS.messages, "of another application")
    with pytest.raises(ForeignKey, match=r"'reliq:\{q\}:messages' is a string, reliq needs a list.*Rename or delete"):
        world.store.run(one_batch())


def test_a_foreign_key_that_it_does_not_touch_holds_nothing_up(world):
    world.given(processing={"w": "a"}, leases=OVER)
    world.redis.set(KEYS.active, "of another application")
    assert world.store.run(one_batch()).returned == 1


@pytest.mark.parametrize(
    ("held", "alone", "charged"),
    [
        ([("a", False)], True, {"a": 1}),  # the message that was alone must have been running
        ([("b", False), ("a", False)], False, {"a": 0, "b": 0}),  # of two new ones, it is unknown which
        ([("c", False), ("b", True), ("a", False)], False, {"a": 0, "b": 1, "c": 0}),  # the redelivered one ran alone
        ([("c", True), ("b", True), ("a", False)], False, {"a": 0, "b": 1, "c": 0}),  # of two, the older one
    ],
)
def test_a_delivery_is_charged_to_the_message_that_can_have_been_running(held, alone, charged):
    newest_first = [element(name, redelivered=redelivered) for name, redelivered in held]
    from reliq.model.message import Message

    returns = charge_deliveries("q", newest_first, 5, alone, mark=None)
    assert {one.id: Message.decode("q", one.again).deliveries for one in returns} == charged
    assert all(Message.decode("q", one.again).redelivered for one in returns)


def charges(world):
    """The deliveries of each ready message, by id."""
    from reliq.model.message import Message

    found = [Message.decode("q", raw) for raw in world.redis.lrange(KEYS.messages, 0, -1)]
    return {message.id: message.deliveries for message in found}


def redelivered(*names):
    return [element(name, redelivered=True) for name in names]


def marked(world, name):
    """The worker says that it tries this message."""
    from reliq.model.message import Message

    world.run(ops.register(KEYS, "w", 15.0, marks=True))
    if name:
        world.run(ops.mark_tried(KEYS, "w", Message.decode("q", element(name, redelivered=True)).tag))


@pytest.mark.parametrize(
    ("mark", "charged"), [("b", {"a": 0, "b": 1}), ("", {"a": 0, "b": 0}), ("x", {"a": 0, "b": 0})]
)
def test_of_a_worker_that_marks_what_it_tries_only_that_message_is_charged(world, mark, charged):
    marked(world, mark)
    world.redis.rpush(KEYS.processing("w"), *reversed(redelivered("a", "b")))
    world.store.run(take_back(KEYS, "w", known_dead=True))
    assert charges(world) == charged
    assert not world.redis.exists(KEYS.trying)


@pytest.mark.parametrize(("count", "together"), [(2, 1), (8, 4)])
def test_of_several_that_ran_at_a_time_none_is_charged_and_fewer_run_from_then_on(world, count, together):
    from reliq.model.message import Message

    marked(world, "a")
    world.run(ops.mark_several(KEYS, "w", count))
    world.redis.rpush(KEYS.processing("w"), element("fresh"), *reversed(redelivered("a", "b")))
    world.store.run(take_back(KEYS, "w", known_dead=True))
    assert charges(world) == {"a": 0, "b": 0, "fresh": 0}
    found = [Message.decode("q", raw) for raw in world.redis.lrange(KEYS.messages, 0, -1)]
    assert {one.id: one.together for one in found} == {"a": together, "b": together, "fresh": 0}


def test_a_full_redis_takes_the_mark(world):
    marked(world, "")
    world.fill()
    world.run(ops.mark_tried(KEYS, "w", "a 1"))
    assert world.redis.hgetall(KEYS.trying) == {b"w": b"-a 1"}


def test_a_consumer_that_keeps_no_marks_leaves_none(world):
    world.run(ops.register(KEYS, "w", 15.0))
    assert world.run(ops.mark_tried(KEYS, "w", "a 1")) == 0
    assert not world.redis.exists(KEYS.trying)


def test_a_message_that_was_alone_is_charged_unless_it_waited_for_its_try(world):
    marked(world, "")
    world.redis.rpush(KEYS.processing("w"), element("a"))
    world.store.run(take_back(KEYS, "w", known_dead=True))
    assert charges(world) == {"a": 1}
    world.redis.delete(KEYS.messages)
    marked(world, "")
    world.redis.rpush(KEYS.processing("w"), *redelivered("a"))
    world.store.run(take_back(KEYS, "w", known_dead=True))
    assert charges(world) == {"a": 0}


def test_a_message_is_not_alone_when_its_process_holds_another_one_of_another_queue(world):
    other = QueueKeys("other")
    world.redis.sadd("reliq:queues", "q", "other")
    for keys, name in ((KEYS, "a"), (other, "b")):
        world.redis.sadd(keys.consumers, "cw")
        world.redis.rpush(keys.processing("cw"), element(name))
    world.store.run(take_back_owner("cw"))
    assert charges(world) == {"a": 0}
    assert not world.redis.exists(KEYS.trying, other.trying)


def test_a_message_that_is_not_alone_stays_so_when_the_monitor_dies_between_two_queues(world):
    other = QueueKeys("other")
    holders = [(KEYS, "cw"), (other, "cw")]
    for keys, name in ((KEYS, "a"), (other, "b")):
        world.redis.sadd(keys.consumers, "cw")
        world.redis.rpush(keys.processing("cw"), element(name))
    world.store.run(note_not_alone(holders))
    world.store.run(take_back(other, "cw", known_dead=True))
    world.store.run(note_not_alone(holders))  # by the next monitor
    world.store.run(take_back(KEYS, "cw", known_dead=True))
    assert charges(world) == {"a": 0}


def test_nothing_is_noted_of_lists_that_are_empty_by_now():
    steps = note_not_alone([(KEYS, "cw")], all_known=False)
    next(steps)
    with pytest.raises(StopIteration):
        steps.send([0])


def test_a_look_for_company_that_failed_is_over_with_the_last_vanished_consumer():
    def failing():
        raise RedisUnavailable("a node is away")
        yield

    attempts = Attempts(lambda home: "", sharded=True)
    list(attempts.of_all("company", failing(), None, other_server=True))
    assert attempts.failing == {("company", "")}
    survey = SimpleNamespace(looked_at=1.0, gone=[], consumers=[], queues=[], attempts=attempts)
    Returns()._note(survey)  # type: ignore[arg-type]
    assert attempts.failing == set()


def test_the_last_one_of_a_long_list_was_not_alone_and_only_one_of_it_is_charged(world):
    world.given(leases=OVER)
    names = [f"m{'abcdefghij'[number // 10]}{'abcdefghij'[number % 10]}" for number in range(100)]
    world.redis.rpush(KEYS.processing("w"), element("new"), *reversed(redelivered(*names)))
    world.redis.lpush(KEYS.processing("w"), *redelivered("late"))
    world.store.run(take_back(KEYS, "w"))
    assert [name for name, count in charges(world).items() if count] == ["maa"]


def test_a_foreign_key_in_one_queue_of_a_dead_worker_holds_up_no_other(world):
    other = QueueKeys("other")
    world.redis.sadd("reliq:queues", "q", "other")
    for keys, name in ((KEYS, "a"), (other, "b")):
        world.redis.sadd(keys.consumers, "cw")
        world.redis.rpush(keys.processing("cw"), element(name))
    world.redis.set(other.messages, "of another application")
    with pytest.raises(ForeignKey):
        world.store.run(take_back_owner("cw"))
    assert charges(world) == {"a": 0}
    assert world.redis.llen(other.processing("cw")) == 1
