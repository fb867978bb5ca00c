"""Messages that a monitor takes to another partition: what belongs to them comes along, whatever happens meanwhile."""

import itertools
import string
from collections.abc import Callable
from typing import Any

import pytest

from reliq import ops
from reliq.contract.counter_names import Counter
from reliq.features.output import ops as output
from reliq.features.steps import ops as steps
from reliq.features.steps.model import Entry
from reliq.features.steps.ops import Parting
from reliq.features.steps.signals import SignalSteps
from reliq.features.tracking.steps import Tracking
from reliq.model.element import group_of
from reliq.model.keys import QueueKeys
from reliq.model.life import Report
from reliq.model.message import Message
from reliq.model.partitions import Layout, bucket_of_key, home_by_bucket, layout_text
from reliq.ops import Steps, Together
from reliq.ops.held import Hold
from reliq.protocol.homes import QueueHomes
from reliq.protocol.producer import ProducerPool
from reliq.protocol.queue import QueueSteps
from reliq.protocol.relocation import Sent, send_strays, withdraw
from reliq.protocol.shares import share_again
from tests.support.state import HOUR, KEYS, World, element, keyed

NEW = QueueKeys("q@partition.1")
KEY = next(key for key in "abcdefgh" if home_by_bucket(2)[bucket_of_key(key)] == 1)
MESSAGE = keyed("m", KEY)
CHARGED = Entry("s", 1, "charge", b"j5").encoded()
REQUESTS = range(14)  #: of a move: before each of them something else happens


@pytest.fixture
def growing(world: World) -> World:
    """A message whose handler has recorded, reported and emitted something is due; its key has a new home since."""
    world.given(leases={"w": HOUR})
    world.redis.rpush(KEYS.processing("w"), MESSAGE)
    hold = Hold(KEYS, "w", Message.decode("q", MESSAGE))
    for op in (
        steps.record(hold, 1, CHARGED),
        output.emit(hold, "t1", b"j1"),
        ops.report(hold, Report(state=b"half")),
    ):
        assert world.run(op) in ("ok", True)
    world.redis.hset(KEYS.told, "m", world.now)
    world.redis.lpop(KEYS.processing("w"))
    world.redis.zadd(KEYS.delayed, {MESSAGE: 1})
    grow(world)
    world.run(ops.promote(KEYS, 10))
    return world


def grow(world: World) -> None:
    world.run(ops.set_policy(KEYS, ["partitions", layout_text(layout())]))
    world.store.run(share_again("q", layout()))


def layout() -> Layout:
    return Layout(("1",), before=1, moving=True, version=1)


def move() -> Steps[Sent]:
    return send_strays(layout(), KEYS, ProducerPool())


def run(world: World, steps: Steps[Any], before: int = -1, act: Callable[[], object] = lambda: None) -> int:
    """Run steps; before that request, something else happens. Return how many requests there were."""
    count = 0

    def answer(request: Any) -> Any:
        nonlocal count
        if isinstance(request, Together):
            return [result(one) for one in request.steps]
        if count == before:
            act()
        count += 1
        return world.store.call(request)

    def result(steps: Steps[Any]) -> Any:
        request = next(steps)
        while True:
            try:
                request = steps.send(answer(request))
            except StopIteration as end:
                return end.value

    result(steps)
    return count


def give(world: World, name: str, value: str = "yes") -> bool:
    taken: bool = world.store.run(SignalSteps(QueueHomes("q", ProducerPool())).give("m", name, value))
    return taken


def claim(world: World) -> Hold:
    """Let the message begin in its new home."""
    world.run(ops.release_lines(NEW, [group_of(KEY)], 1))
    world.redis.set(NEW.lease("w"), world.now + HOUR)
    (claimed,) = world.run(ops.claim(NEW, "w", 15.0, 1)).elements
    return Hold(NEW, "w", Message.decode("q", claimed))


def signal_at_home(world: World, name: str) -> object:
    return world.run(steps.signals_of(NEW, "m")).get(name)


def test_all_that_belongs_to_a_message_moves_with_it(growing: World):
    purged_there = {"tag": "m 2", "sent": 1, "at": 1, "fraction": "0.5"}  # what was reported about another message m
    growing.redis.hset(NEW.report("m"), mapping=purged_there)
    assert run(growing, move()) <= len(REQUESTS), "each place of a move is tried"
    assert growing.redis.exists(KEYS.waiting) == 0
    hold = claim(growing)
    assert [one.name for one in growing.run(steps.recorded(NEW, "m")).entries] == ["charge"]
    assert [one.value for one in growing.run(output.emitted(NEW, "m", "", 10)).chunks] == [1]
    report = growing.run(ops.reported(NEW, "m"))
    assert (report.state, report.fraction, report.sent) == (b"half", None, hold.message.enqueued_at)
    assert growing.run(ops.told(NEW)) == (("m", growing.now),)
    assert growing.run(steps.recorded(KEYS, "m")).entries == ()
    assert hold.message.id == "m"


@pytest.mark.parametrize("before", REQUESTS)
def test_a_signal_at_any_time_of_a_move_is_given_to_the_message(growing: World, before: int):
    given = []
    run(growing, move(), before, lambda: given.append(give(growing, "go")))
    given = given or [give(growing, "go")]
    assert given == [True]
    assert signal_at_home(growing, "go") == b'j"yes"'
    assert give(growing, "go", "no") is False
    assert signal_at_home(growing, "go") == b'j"yes"'


@pytest.mark.parametrize("before", REQUESTS)
def test_a_second_signal_during_a_move_is_the_second_one(growing: World, before: int):
    assert give(growing, "go")
    given = []
    run(growing, move(), before, lambda: given.append(give(growing, "go", "no")))
    assert given in ([False], [])
    assert signal_at_home(growing, "go") == b'j"yes"'


@pytest.mark.parametrize("before", REQUESTS)
def test_a_slow_monitor_does_not_undo_what_the_handler_has_done_since(growing: World, before: int):
    """Another monitor has brought the message meanwhile; its handler is further, or has even ended."""
    begun = []

    def goes_on() -> None:
        run(growing, move())
        hold = claim(growing)
        begun.append(hold)
        assert growing.run(steps.record(hold, 2, Entry("s", 2, "pack", b"j6").encoded())) == "ok"
        assert growing.run(output.emit(hold, "t2", b"j2")) == "ok"
        assert growing.run(ops.report(hold, Report(state=b"whole")))

    run(growing, move(), before, goes_on)
    if not begun:
        goes_on()
    assert [one.name for one in growing.run(steps.recorded(NEW, "m")).entries] == ["charge", "pack"]
    emitted = growing.run(output.emitted(NEW, "m", "", 10))
    assert [one.value for one in emitted.chunks] == [1, 2]
    assert emitted.head.startswith("2 4 ")
    assert growing.run(ops.reported(NEW, "m")).state == b"whole"


@pytest.mark.parametrize("before", REQUESTS)
def test_a_slow_monitor_brings_nothing_of_a_message_that_was_handled_since(growing: World, before: int):
    def ends() -> None:
        run(growing, move())
        hold = claim(growing)
        growing.run(ops.forget_told(NEW, ["m"]))
        growing.run(ops.forget_reports(NEW, ["m"]))
        growing.run(ops.settle(NEW, "w", 15.0, [hold.message.element]))

    if run(growing, move(), before, ends) <= before:
        ends()
    assert growing.redis.exists(NEW.followed, NEW.report("m"), NEW.told) == 0
    assert growing.redis.hmget(NEW.config, "recorded", "emitted") == [None, None]


def test_what_was_brought_for_a_message_that_did_not_come_is_forgotten(growing: World):
    moving = move()
    request: Any = next(moving)
    while getattr(getattr(request, "script", None), "name", None) != "enqueue":
        request = moving.send(growing.store.call(request))
    assert growing.run(steps.recorded(NEW, "m")).entries
    for one in growing.redis.zrange(NEW.waits, 0, -1):
        growing.redis.zadd(NEW.waits, {one: 1})
    growing.run(steps.unpark_due(NEW, 10))
    assert growing.run(steps.recorded(NEW, "m")).entries == ()
    assert growing.redis.hget(NEW.config, "recorded") is None


def test_a_long_record_comes_along_in_parts_with_the_early_signals_that_its_new_home_has(growing: World):
    for number in range(2, 1200):
        growing.redis.hset(KEYS.followed, f"\nm\n{number}", b"s1 step-%d\nj1" % number)
    head = growing.redis.hget(KEYS.followed, "\nm").replace(b"1 ", b"1199 ", 1)
    growing.redis.hset(KEYS.followed, "\nm", head)
    assert growing.run(steps.signal(NEW, "m", "early", b"j1", 60.0)) == "early"
    run(growing, move())
    recorded = growing.redis.hgetall(NEW.followed)
    assert recorded[b"\nm"] == head + b"\nearly"
    assert len(growing.run(steps.recorded(NEW, "m")).entries) == 1199
    assert growing.run(steps.signal(NEW, "m", "early", b"j2", None)) == "before"
    assert growing.redis.hget(NEW.config, "recorded") == b"1"


def test_the_record_of_another_message_with_the_same_id_is_not_replaced(growing: World):
    growing.redis.hset(NEW.followed, mapping={"\nm": "1 7 1", "\nm\n1": "s1 other\nj1"})
    run(growing, move())
    assert [one.name for one in growing.run(steps.recorded(NEW, "m")).entries] == ["other"]


def test_the_output_of_an_earlier_message_with_the_same_id_is_not_mixed_with_it(growing: World):
    growing.redis.xadd(NEW.output("m"), {"run": 1, "chunk": "j9"}, id="1-1")
    run(growing, move())
    assert [one.value for one in growing.run(output.emitted(NEW, "m", "", 10)).chunks] == [1]


QUEUE = QueueHomes("q", ProducerPool())
REMOVALS = {
    "purge": lambda: QueueSteps("q", ProducerPool()).purge(),
    "cancel": lambda: Tracking(QUEUE).cancel("m"),
    "cancel by key": lambda: Tracking(QUEUE).cancel_many(KEY, None, dry_run=False),
}


def removed_once(world: World) -> bool:
    """Whether the message has left the queue by a removal, and nothing of it is anywhere."""
    counts = [world.redis.hmget(keys.counters, "purged", "cancelled") for keys in (KEYS, NEW)]
    places = [place for keys in (KEYS, NEW) for place in (keys.waiting, keys.messages, keys.delayed)]
    return sum(int(one or 0) for some in counts for one in some) == 1 and world.redis.exists(*places) == 0


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("before", REQUESTS)
def test_a_message_that_is_removed_at_any_time_of_its_move_does_not_come_home(
    growing: World, removal: str, before: int
):
    def remove() -> None:
        run(growing, REMOVALS[removal]())

    if run(growing, move(), before, remove) <= before:
        remove()
    run(growing, move())
    assert removed_once(growing)


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("before", range(24))
def test_a_message_that_moves_at_any_time_of_its_removal_is_removed_in_its_home(
    growing: World, removal: str, before: int
):
    run(growing, REMOVALS[removal](), before, lambda: run(growing, move()))
    assert removed_once(growing)


def test_a_monitor_ends_the_removal_of_a_message_that_its_home_refuses(growing: World):
    """Who cancelled it has died in between."""
    withdrawing = withdraw(KEYS, growing.run(ops.strays(KEYS, b"", 10))[1], Counter.CANCELLED)
    request: Any = next(withdrawing)
    while getattr(getattr(request, "script", None), "name", None) != "withdraw":
        request = withdrawing.send(growing.store.call(request))
    assert run(growing, move())
    assert removed_once(growing)


def names(count: int) -> list[str]:
    return [
        "".join(letters) for letters in itertools.islice(itertools.product(string.ascii_lowercase, repeat=2), count)
    ]


def test_messages_whose_home_is_full_hold_nothing_up(world: World):
    """More of one key than a monitor takes at once, and those of other keys before and behind them."""
    three = Layout(("1", "2"), before=1, moving=True, version=1)
    keys = sorted(map(str, range(30)), key=group_of)
    full, free = ([key for key in keys if home_by_bucket(3)[bucket_of_key(key)] == home] for home in (1, 2))
    sent = [keyed(name, full[1]) for name in names(144)]
    others = [keyed(f"x-{name}", key) for name, key in zip(names(30), [full[0], full[-1], *free], strict=False)]
    world.redis.zadd(KEYS.delayed, {one: place for place, one in enumerate([*sent, *others], 1)})
    world.run(ops.set_policy(KEYS, ["partitions", layout_text(three)]))
    world.store.run(share_again("q", three))
    world.run(ops.promote(KEYS, 1000))
    world.redis.hset(NEW.config, "max_length", 1)
    world.redis.lpush(NEW.messages, element("x"))

    def bring() -> Sent:
        return world.store.run(send_strays(three, KEYS, ProducerPool()))

    assert bring() == Sent(len(free), b"")
    assert world.redis.zcard(KEYS.waiting) == len(sent) + 2
    world.redis.hdel(NEW.config, "max_length")
    assert bring() == Sent(len(sent) + 2, b"")
    assert [
        one[32:] for one in world.redis.zrange(NEW.waiting, 0, -1) if one.startswith(group_of(full[1]).encode())
    ] == sent


def test_a_call_that_may_not_go_on_says_where_it_has_stopped(world: World):
    keys = [key for key in map(str, range(400)) if home_by_bucket(2)[bucket_of_key(key)] == 1]
    world.redis.zadd(KEYS.delayed, {keyed(name, key): 1 for name, key in zip(names(len(keys)), keys, strict=True)})
    grow(world)
    world.run(ops.promote(KEYS, 1000))
    start, counts = b"", list[int]()
    while start or not counts:
        count, start = world.store.run(send_strays(layout(), KEYS, ProducerPool(), start, until=0.0))
        counts.append(count)
    assert (sum(counts), max(counts)) == (len(keys), 100)


def test_a_message_refused_elsewhere_does_not_stay_when_its_home_is_here_again(growing: World):
    """A purge has died in between, and the number of partitions is as before."""
    withdrawing = withdraw(KEYS, growing.run(ops.strays(KEYS, b"", 10))[1], Counter.PURGED)
    request: Any = next(withdrawing)
    while getattr(getattr(request, "script", None), "name", None) != "withdraw":
        request = withdrawing.send(growing.store.call(request))
    back = Layout((), before=2, moving=True, version=2, retired=("1",))
    growing.run(ops.set_policy(KEYS, ["partitions", layout_text(back)]))
    growing.store.run(share_again("q", back))
    assert growing.store.run(send_strays(back, KEYS, ProducerPool())) == Sent(1, b"")
    assert removed_once(growing)


def test_a_removal_whose_answer_is_lost_is_counted(growing: World):
    def answered_late() -> ops.Steps[Any]:
        withdrawing = withdraw(KEYS, growing.run(ops.strays(KEYS, b"", 10))[1], Counter.PURGED)
        answer: Any = None
        try:
            while True:
                request = withdrawing.send(answer)
                answer = yield request
                if getattr(getattr(request, "script", None), "name", None) == "withdraw":
                    answer = yield request  # the transport repeats it
        except StopIteration as end:
            return end.value

    assert growing.store.run(answered_late()).removed == 1
    assert removed_once(growing)


@pytest.mark.parametrize("before", range(-1, 8))
def test_an_early_signal_reaches_a_partition_that_is_added_then(world: World, before: int):
    """Wherever the signal and the change of the number meet: the message comes to the new partition."""
    given = [give(world, "go")] if before < 0 else []
    world.run(ops.set_policy(KEYS, ["partitions", layout_text(layout())]))
    run(world, share_again("q", layout()), before, lambda: given.append(give(world, "go")))
    given = given or [give(world, "go")]
    assert given == [True]
    assert world.run(ops.enqueue(NEW, (), [ops.Entry("m", MESSAGE, 0.0, None, 0.0)], version=1)).status == "ok"
    assert world.run(steps.park(claim(world), "go", None, Parting(element("m2")))) == ("given", b'j"yes"')


@pytest.mark.parametrize("before", range(8))
def test_a_signal_is_new_though_a_partition_that_is_added_then_has_it_from_the_first_one(world: World, before: int):
    homes, given = QueueHomes("q", ProducerPool()), list[bool]()

    def signal() -> ops.Steps[None]:
        given.append((yield from SignalSteps(homes).give("m", "go", "yes")))

    run(world, signal(), before, lambda: grow(world))
    assert given == [True]
    assert give(world, "go") is False


def test_an_early_signal_whose_giver_knows_an_older_layout_reaches_a_new_partition(world: World):
    homes = QueueHomes("q", ProducerPool())
    world.store.run(homes.read())
    grow(world)
    assert world.store.run(SignalSteps(homes).give("m", "go", "yes"))
    assert world.run(steps.signals_of(NEW, "m")) == {"go": b'j"yes"'}
