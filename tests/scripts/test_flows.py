"""Messages that wait until others have ended, by whole states."""

import itertools
import time

import pytest

from reliq import ops
from reliq.features.flows import ops as own
from reliq.features.flows.model import Node, OnFailure, Plan, encode_node
from reliq.features.flows.stored import Behind, Ended, Happened, Noted
from reliq.features.flows.telling import tell
from reliq.model.element import decode_envelope, new_id
from reliq.model.keys import FLOWS, QueueKeys, flow_record
from reliq.model.message import Message
from reliq.ops import Destination, Entry, Move
from reliq.ops.held import Hold
from tests.support.state import KEYS, World, element, elements, keyed

OTHER = QueueKeys("other")
STEPS = itertools.count(1)


class Flow(dict[str, list[Behind]]):
    """The members of a flow, and who waits for each of them."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def waits(self, name: str, *before: str, rule: OnFailure = "fail", raw: bytes = b"", delay: float = 0.0) -> None:
        """Send a message that waits for others."""
        assert self.world.run(own.flow_wait(KEYS, "flow", next(STEPS), [(name, len(before), rule)])) == []
        self.world.run(ops.enqueue(KEYS, [], [Entry(name, raw or element(name), delay, None, 0.0)]))
        for place, one in enumerate(before):
            self.setdefault(one, []).append(Behind(place, name, ""))
        self.setdefault(name, [])

    def note(self) -> None:
        """Note all members."""
        every = enumerate(sorted(self.items()))
        members = [Noted(name, f"flow {at}", behind) for at, (name, behind) in every]
        assert self.world.run(own.flow_note(KEYS, members)) == []


@pytest.fixture
def flow(world: World) -> Flow:
    return Flow(world)


def send(world: World, *names: str) -> None:
    world.run(ops.enqueue(KEYS, elements(*names)))


def work_off(world: World) -> list[str]:
    """Claim and ack one message after another; return their ids in this order."""
    world.given(leases={"w": 60_000})
    done = []
    while claimed := world.run(ops.claim(KEYS, "w", 60.0, 1)).elements:
        world.run(ops.settle(KEYS, "w", 60.0, claimed))
        done += [decode_envelope(one).id for one in claimed]
    return done


def tell_all(world: World) -> list[Happened]:
    """Tell what has happened, as a monitor does; return it."""
    happened = world.run(own.flow_news(KEYS, 100)).happened
    while world.store.run(tell(KEYS)):
        pass
    return [*happened]


def nothing_is_left(world: World) -> None:
    tell_all(world)
    assert not world.redis.exists(KEYS.followed, KEYS.active, KEYS.waiting, KEYS.flows)
    assert {*world.redis.hkeys(KEYS.config)} <= {b"flowed"}


def waiting(world: World) -> str:
    return world.state().get("waiting", "")


def test_a_chain_runs_in_its_order(world: World, flow: Flow):
    flow.waits("c", "b")
    flow.waits("b", "a")
    flow.note()
    assert (world.redis.llen(KEYS.messages), world.redis.hget(KEYS.config, "flowing")) == (0, b"5")
    send(world, "a")
    assert work_off(world) == ["a", "b", "c"]
    nothing_is_left(world)


def test_a_fan_in_waits_for_the_last_and_a_fan_out_begins_at_once(world: World, flow: Flow):
    flow.waits("end", "b", "c", "d")
    for name in "bcd":
        flow.waits(name, "a")
    flow.note()
    send(world, "a")
    done = work_off(world)
    assert (done[0], sorted(done[1:4]), done[4]) == ("a", ["b", "c", "d"], "end")
    nothing_is_left(world)


def test_acks_of_one_call_release_once_and_their_claim_gets_what_they_released(world: World, flow: Flow):
    flow.waits("end", "a", "b")
    flow.note()
    send(world, "a", "b")
    world.given(leases={"w": 60_000})
    first, second = world.run(ops.claim(KEYS, "w", 60.0, 2)).elements
    answer = world.run(ops.settle(KEYS, "w", 60.0, [first, second], limit=5, row=2))
    assert answer.elements == [element("end")]


def test_a_message_with_a_key_of_its_own_waits_for_others_first_and_then_for_its_key(world: World, flow: Flow):
    flow.waits("end", "a", raw=keyed("end", "k"))
    flow.note()
    world.run(ops.enqueue(KEYS, elements("a"), [Entry("h", keyed("h", "k"), 0.0, None, 0.0)]))
    world.given(leases={"w": 60_000})
    first, holder = world.run(ops.claim(KEYS, "w", 60.0, 5)).elements
    world.run(ops.settle(KEYS, "w", 60.0, [first]))
    assert (waiting(world), world.redis.hget(KEYS.config, "flowing")) == ("end", b"1")
    world.run(ops.settle(KEYS, "w", 60.0, [holder]))
    assert work_off(world) == ["end"]
    nothing_is_left(world)


@pytest.mark.parametrize("row", [0, 1])
def test_one_behind_a_message_of_its_own_key_gets_the_key_with_the_ack_of_that(world: World, flow: Flow, row: int):
    flow.waits("end", "a", raw=keyed("end", "k"))
    flow.note()
    world.run(ops.enqueue(KEYS, [], [Entry("a", keyed("a", "k"), 0.0, None, 0.0)]))
    world.given(leases={"w": 60_000})
    (first,) = world.run(ops.claim(KEYS, "w", 60.0, 5)).elements
    ordered = world.redis.hget(KEYS.counters, "ordered")
    answer = world.run(ops.settle(KEYS, "w", 60.0, [first], limit=5, row=row))
    assert answer.elements == [keyed("end", "k")]
    assert world.redis.hget(KEYS.counters, "ordered") == ordered  # it has waited for its flow only
    world.run(ops.settle(KEYS, "w", 60.0, answer.elements))
    nothing_is_left(world)


def test_a_delayed_member_waits_for_its_time_and_for_the_member_before(world: World, flow: Flow):
    flow.waits("late", "a", delay=60.0)
    flow.waits("soon", "a", delay=60.0)
    flow.note()
    world.redis.zadd(KEYS.delayed, {element("soon"): 1})
    world.run(ops.promote(KEYS, 10))
    assert (world.state()["delayed"], waiting(world)) == ("late", "soon")
    send(world, "a")
    assert work_off(world) == ["a", "soon"]
    world.redis.zadd(KEYS.delayed, {element("late"): 1})
    world.run(ops.promote(KEYS, 10))
    assert work_off(world) == ["late"]
    nothing_is_left(world)


@pytest.mark.parametrize("destination", [Destination.HEAD, Destination.DEAD, Destination.DELAYED])
def test_what_is_not_handled_releases_nothing(world: World, flow: Flow, destination: Destination):
    flow.waits("end", "a")
    flow.note()
    world.given(processing={"w": "a"}, leases={"w": 60_000})
    world.run(ops.settle(KEYS, "w", 60.0, [], [Move(element("a"), destination, "x", "a", element("a2"), 60.0)]))
    tell_all(world)
    assert (waiting(world), world.redis.hget(KEYS.config, "flowing")) == ("end", b"3")


def fails(world: World, how: str) -> None:
    """Let message a fail in a way."""
    world.given(processing={"w": "a"}, leases={"w": 60_000})
    if how == "cancelled":
        world.run(ops.settle(KEYS, "w", 60.0, [], [Move(element("a"), Destination.GONE, "cancelled", "a")]))
        return
    move = Move(element("a"), Destination.DEAD, "dead:rejected", "a", element("a"))
    world.run(ops.settle(KEYS, "w", 60.0, [], [move]))
    if how == "discarded":
        world.run(ops.discard(KEYS, [(element("a"), "a", b"")], "purged_dead"))


@pytest.mark.parametrize(
    ("rule", "how", "where"),
    [
        ("fail", "dead", "waits"), ("fail", "cancelled", "dies"), ("fail", "discarded", "dies"),
        ("skip", "dead", "goes"), ("skip", "cancelled", "goes"), ("skip", "discarded", "goes"),
        ("run", "dead", "runs"), ("run", "cancelled", "runs"), ("run", "discarded", "runs"),
    ],
)  # fmt: skip
def test_one_that_fails_is_judged_by_the_rule_of_the_one_that_waits(
    world: World, flow: Flow, rule: OnFailure, how: str, where: str
):
    flow.waits("end", "a", rule=rule)
    flow.note()
    fails(world, how)
    tell_all(world)
    state = world.state()
    found = {
        "waits": state.get("waiting") == "end",
        "dies": state["counters"].get("dead:predecessor") == 1 and state["dead"].startswith("end"),
        "goes": state["counters"].get("cancelled", 0) - (how == "cancelled") == 1,
        "runs": state.get("messages") == "end",
    }
    assert [name for name, true in found.items() if true] == [where]


def test_a_dead_letter_that_waited_says_why_and_runs_after_its_redrive(world: World, flow: Flow):
    flow.waits("end", "a")
    flow.note()
    fails(world, "cancelled")
    tell_all(world)
    (raw,) = world.redis.zrange(KEYS.dead, 0, -1)
    assert Message.decode("q", raw).reason == "predecessor"
    world.run(ops.redrive(KEYS, [ops.Revival(raw, "end", element("end2"))]))
    assert work_off(world) == ["end"]
    nothing_is_left(world)


def test_failures_go_on_to_those_behind(world: World, flow: Flow):
    flow.waits("last", "end", rule="run")
    flow.waits("end", "a", rule="skip")
    flow.note()
    fails(world, "dead")
    assert [(one.outcome, one.id) for one in tell_all(world)] == [("dead", "a")]
    assert work_off(world) == ["last"]


@pytest.mark.parametrize("told", ["before the redrive", "before its end", "behind its end"])
def test_a_death_counts_once_whenever_it_is_told(world: World, flow: Flow, told: str):
    flow.waits("end", "a", "b", rule="run")
    flow.note()
    fails(world, "dead")
    if told == "before the redrive":
        tell_all(world)
    world.run(ops.redrive(KEYS, [ops.Revival(element("a"), "a", element("a"))]))
    if told == "before its end":
        tell_all(world)
    assert work_off(world) == ["a"]
    tell_all(world)
    assert waiting(world) == "end"
    send(world, "b")
    assert work_off(world) == ["b", "end"]
    nothing_is_left(world)


def test_a_failure_that_is_told_twice_and_its_redrive_count_once(world: World, flow: Flow):
    flow.waits("end", "a", "b", rule="run")
    flow.note()
    fails(world, "dead")
    for _ in range(2):
        world.run(own.flow_tell(KEYS, [("end", 0, "dead")]))
    tell_all(world)
    world.run(ops.redrive(KEYS, [ops.Revival(element("a"), "a", element("a2"))]))
    assert work_off(world) == ["a"]
    assert waiting(world) == "end"
    send(world, "b")
    assert work_off(world) == ["b", "end"]
    nothing_is_left(world)


def test_one_that_waits_may_be_cancelled_or_purged(world: World, flow: Flow):
    for name in ("b", "c"):
        flow.waits(name, "a")
    flow.note()
    assert world.run(own.flow_drop(KEYS, "flow", ["b", "a", "x"])) == 1
    assert waiting(world) == "c"
    world.run(ops.purge(KEYS, 100))
    assert [(one.outcome, one.id) for one in tell_all(world)] == [("cancelled", "b"), ("purged", "c")]
    send(world, "a")
    assert work_off(world) == ["a"]
    nothing_is_left(world)


def test_a_message_of_a_flow_that_was_given_up_does_not_run_when_it_comes_late(world: World):
    assert world.run(own.flow_wait(KEYS, "flow", next(STEPS), [("late", 1, "fail"), ("never", 1, "fail")])) == []
    world.run(own.flow_drop(KEYS, "flow", ["late", "never"]))
    world.run(ops.enqueue(KEYS, [], [Entry("late", element("late"), 0.0, None, 0.0)]))
    state = world.state()
    assert ("messages" in state, "waiting" in state, state["counters"]["cancelled"]) == (False, False, 1)
    world.run(own.flow_drop(KEYS, "flow", ["late", "never"], forever=True))
    nothing_is_left(world)


def test_what_another_home_is_told_releases_there_once(world: World):
    assert world.run(own.flow_wait(OTHER, "flow", next(STEPS), [("end", 2, "fail")])) == []
    world.run(ops.enqueue(OTHER, [], [Entry("end", element("end"), 0.0, None, 0.0)]))
    behind = {name: [Behind(place, "end", "other")] for place, name in enumerate("ab")}
    world.run(own.flow_note(KEYS, [Noted(name, "flow 1", behind=some) for name, some in behind.items()]))
    send(world, "a", "b")
    assert work_off(world) == ["a", "b"]
    assert world.redis.llen(OTHER.messages) == 0
    news = world.run(own.flow_news(KEYS, 100))
    assert [one.id for one in news.happened] == ["a", "b"]
    for _ in range(2):
        world.run(own.flow_tell(OTHER, [("end", 0, "acked")]))
    assert world.redis.llen(OTHER.messages) == 0
    tell_all(world)
    assert world.redis.lrange(OTHER.messages, 0, -1) == [element("end")]
    nothing_is_left(world)


@pytest.mark.parametrize("told", [["first", "second"], ["second", "first"]])
def test_messages_of_a_key_that_go_on_at_once_keep_their_order(world: World, flow: Flow, told: list[str]):
    for place, name in enumerate(["first", "second"]):
        flow.waits(name, f"before {place}", raw=keyed(name, "k"))
    world.run(own.flow_tell(KEYS, [(name, 0, "acked") for name in told]))
    assert work_off(world) == ["first", "second"]


@pytest.mark.parametrize("acked", [["a", "b"], ["b", "a"]])
def test_messages_of_a_key_released_by_acks_of_one_call_keep_their_order(world: World, flow: Flow, acked: list[str]):
    flow.waits("first", "a", raw=keyed("first", "k"))
    flow.waits("second", "b", raw=keyed("second", "k"))
    send(world, *acked)
    flow.note()
    world.given(leases={"w": 60_000})
    world.run(ops.settle(KEYS, "w", 60.0, world.run(ops.claim(KEYS, "w", 60.0, 2)).elements))
    assert work_off(world) == ["first", "second"]


def test_news_are_told_in_parts(world: World):
    members = [Noted(name, "flow 1", behind=()) for name in "abc"]
    world.run(own.flow_note(KEYS, members))
    send(world, "a", "b", "c")
    work_off(world)
    news = world.run(own.flow_news(KEYS, 2))
    assert (news.up_to, [one.id for one in news.happened]) == (2, ["a", "b"])
    for _ in range(2):  # two monitors
        world.run(own.flow_told(KEYS, news.up_to))
    assert [one.id for one in tell_all(world)] == ["c"]
    nothing_is_left(world)


def test_a_slow_monitor_forgets_only_what_it_has_told(world: World):
    world.run(own.flow_note(KEYS, [Noted(name, "flow 1", behind=()) for name in "abc"]))
    for name in ("a", "b"):
        send(world, name)
        work_off(world)
    slow = world.run(own.flow_news(KEYS, 100))
    assert len(tell_all(world)) == 2  # by another one
    send(world, "c")
    work_off(world)
    world.run(own.flow_told(KEYS, slow.up_to))
    assert [one.id for one in tell_all(world)] == ["c"]
    nothing_is_left(world)


def test_a_repeated_call_changes_nothing_and_an_id_of_another_flow_is_refused(world: World, flow: Flow):
    flow.waits("end", "a", "b")
    flow.note()
    before = world.redis.hgetall(KEYS.followed)
    assert world.run(own.flow_wait(KEYS, "flow", next(STEPS), [("end", 2, "fail")])) == []
    flow.note()
    assert world.redis.hgetall(KEYS.followed) == before
    assert world.run(own.flow_wait(KEYS, "another", next(STEPS), [("end", 2, "fail")])) == ["end"]
    assert world.run(own.flow_note(KEYS, [Noted("a", "another 1", behind=())])) == ["a"]


def test_a_late_request_to_wait_does_not_hold_back_what_has_gone_on(flow: Flow, world: World):
    flow.waits("end", "a")
    flow.note()
    send(world, "a")
    world.given(leases={"w": 60_000})
    world.run(ops.settle(KEYS, "w", 60.0, world.run(ops.claim(KEYS, "w", 60.0, 1)).elements))
    assert world.run(own.flow_wait(KEYS, "flow", next(STEPS), [("end", 1, "fail")])) == []
    assert world.run(own.flow_wait(KEYS, "another", next(STEPS), [("end", 1, "fail")])) == ["end"]
    assert world.redis.hget(KEYS.followed, "\vend") is None
    (held,) = world.run(ops.claim(KEYS, "w", 60.0, 1)).elements
    again = Message.decode("q", held).again()
    world.run(ops.settle(KEYS, "w", 60.0, (), [Move(held, Destination.HEAD, "requeued", "end", again)]))
    assert work_off(world) == ["end"]


@pytest.mark.parametrize("middle", [False, True])
def test_late_requests_of_a_flow_note_nothing_after_the_end(world: World, middle: bool):
    """A request that arrives twice, the second time when its message has ended, buries nobody and leaves nothing."""
    wait = own.flow_wait(KEYS, "flow", 1, [("m", 1, "fail"), ("end", 2, "fail")])
    behind = [Behind(0, "end", "")]
    note = own.flow_note(KEYS, [Noted("m", "flow 1", behind=behind)], "flow", 2)
    others = [Noted("a", "flow 0", behind=[Behind(0, "m", "")])]
    others += [
        Noted("b", "flow 2", behind=[Behind(1, "end", "")]),
        Noted("end", "flow 3", behind=()),
    ]
    assert world.run(wait) == []
    world.run(ops.enqueue(KEYS, [], [Entry(one, element(one), 0.0, None, 0.0) for one in ("m", "end")]))
    assert [world.run(note), world.run(own.flow_note(KEYS, others))] == [[], []]
    send(world, "a")
    assert work_off(world) == ["a", "m"]
    if middle:
        assert [world.run(wait), world.run(note)] == [[], []]
    tell_all(world)
    send(world, "b")
    assert work_off(world) == ["b", "end"]
    assert [world.run(wait), world.run(note)] == [[], []]
    tell_all(world)
    nothing_is_left(world)


def test_a_late_request_to_drop_leaves_a_member_alone_that_has_come_back(world: World, flow: Flow):
    """Its home was another partition meanwhile, and is this one again: it still waits."""
    drop = own.flow_drop(KEYS, "flow", ["end"], step=next(STEPS), forever=True)
    world.run(drop)
    flow.waits("end", "a")
    flow.note()
    assert (world.run(drop), waiting(world)) == (0, "end")
    send(world, "a")
    assert work_off(world) == ["a", "end"]
    nothing_is_left(world)


def test_a_late_request_to_wait_leaves_nothing_of_a_flow_that_was_given_up(world: World):
    wait = own.flow_wait(KEYS, "flow", 1, [("end", 1, "fail")])
    note = own.flow_note(KEYS, [Noted("a", "flow 0", behind=[Behind(0, "end", "")])], "flow", 2)
    world.run(own.flow_drop(KEYS, "flow", ["a", "end"], step=3, forever=True))
    assert [world.run(wait), world.run(note)] == [[], []]
    nothing_is_left(world)


def test_a_member_that_has_come_from_another_partition_is_not_noted_again(world: World):
    member = Noted("a", "flow 1", behind=())
    assert world.run(own.flow_note(KEYS, [member], brought=KEYS.dedup("x"))) == []
    assert world.redis.hget(KEYS.config, "flowing") == b"1"
    world.redis.delete(KEYS.followed, KEYS.config, KEYS.flows)
    world.redis.set(KEYS.dedup("x"), "a")
    assert world.run(own.flow_note(KEYS, [member], brought=KEYS.dedup("x"))) == []
    assert not world.redis.exists(KEYS.followed, KEYS.config, KEYS.flows)


def test_a_member_that_was_cancelled_before_it_was_noted_is_told(world: World, flow: Flow):
    flow.waits("end", "a")
    world.run(ops.purge(KEYS, 10))
    assert world.run(own.flow_note(KEYS, [Noted("end", "flow 1", behind=())], "flow", next(STEPS))) == []
    assert [(one.outcome, one.id) for one in tell_all(world)] == [("cancelled", "end")]


def plan(*names: str) -> Plan:
    made = Plan()
    made.id, made.nodes = "flow", [Node("q", name) for name in names]
    made.producer, made.behind = "producer", [[] for _ in names]
    return made


def test_the_record_of_a_flow_ends_with_its_last_member(world: World):
    assert world.run(own.flow_open(plan("a", "b"), 0, 1))
    assert world.run(own.flow_open(plan("a", "b"), 1, 2))
    assert world.run(own.flow_head("flow")) | {"opened": ""} == {
        "state": "sending", "opened": "", "size": "2", "left": "2", "held": "1",
    }  # fmt: skip
    assert world.run(own.flow_change("flow", "sending", "open")) == "open"
    assert not world.run(own.flow_open(plan("a", "b"), 1, 2))
    outcomes = [(0, "dead"), (0, "revived"), (0, "acked"), (0, "acked"), (0, "dead")]
    assert [world.run(own.flow_ended("flow", [one])).left for one in outcomes] == [2, 2, 1, 1, 1]
    assert (world.redis.zrange(FLOWS, 0, -1), world.redis.ttl(flow_record("flow"))) == ([b"flow"], -1)
    assert world.run(own.flow_ended("flow", [(1, "skipped")])) == Ended(0, "ended")
    assert world.run(own.flow_change("flow", "open", "cancelled")) == "ended"
    assert (world.redis.zrange(FLOWS, 0, -1), world.redis.ttl(flow_record("flow")) > 3000) == ([], True)
    assert world.run(own.flow_ended("gone", [(1, "acked")])) == Ended()


def test_the_record_of_another_producer_is_left_alone(world: World):
    assert world.run(own.flow_open(plan("a"), 0, 1))
    late = plan("b")
    late.producer = "late"
    assert not world.run(own.flow_open(late, 0, 1))
    assert world.redis.hget(flow_record("flow"), "m0") == b'["q","a",[],"fail"]'


def test_the_record_of_an_opened_flow_counts_what_its_last_members_have_come_to(world: World):
    """And it stays among the open ones until the message whose handler has opened it knows."""
    made = plan("first", "a", "b")
    made.behind = [[(1, 0), (2, 0)], [], []]
    world.run(own.flow_open(plan(), 0, 1))
    world.redis.rename(flow_record("flow"), flow_record("outer"))
    world.redis.delete(FLOWS)
    world.redis.hset(flow_record("outer"), "m7", encode_node(Node("q", "cut")))
    assert world.run(own.flow_open(made, 0, 3, "q cut", ("outer", "7")))
    assert world.redis.hget(flow_record("outer"), "cflow") == b"7"
    world.run(own.flow_change("flow", "sending", "open"))
    told = [(0, "acked"), (1, "dead"), (1, "dead"), (2, "acked"), (1, "revived"), (1, "cancelled"), (1, "acked")]
    ended = [world.run(own.flow_ended("flow", [one])) for one in told]
    assert [(one.left, one.rest, one.dead, one.failed) for one in ended] == [
        (2, 2, 0, 0), (2, 1, 1, 0), (2, 1, 1, 0), (1, 0, 1, 0), (1, 1, 0, 0), (0, 0, 0, 1), (0, 0, 0, 1),
    ]  # fmt: skip
    assert [one.outcome for one in ended] == ["open", "open", "open", "dead", "open", "cancelled", "cancelled"]
    assert (world.redis.zrange(FLOWS, 0, -1), ended[0].parent) == ([b"flow"], "q cut")
    assert world.run(own.flow_ended("flow", (), joined=True)).state == "ended"
    assert (world.redis.zrange(FLOWS, 0, -1), world.redis.ttl(flow_record("flow")) > 3000) == ([], True)


@pytest.mark.parametrize("parent", ["q cutter", "other cut", "q cu"])
def test_a_message_that_is_not_of_a_flow_opens_none_within_it(world: World, parent: str):
    """Its sender may give it the headers of a member."""
    world.redis.hset(flow_record("outer"), mapping={"state": "open", "m7": encode_node(Node("q", "cut"))})
    before = world.redis.hgetall(flow_record("outer"))
    assert world.run(own.flow_open(plan("first"), 0, 1, parent, ("outer", "7")))
    assert world.redis.hgetall(flow_record("outer")) == before


class Cutting:
    """A member, which is claimed and opens flows; `end` waits for it."""

    def __init__(self, world: World, flow: Flow) -> None:
        self.world = world
        flow.waits("end", "cut")
        flow.note()
        send(world, "cut")
        world.given(leases={"w": 60_000})
        assert world.run(ops.claim(KEYS, "w", 60.0, 1)).elements == [element("cut")]

    def hold(self, *opened: str, consumer: str = "w") -> list[str]:
        message = Message.decode("q", element("cut"))
        return [self.world.run(own.flow_hold(Hold(KEYS, consumer, message), one)) for one in opened]

    def told(self, opened: str, outcome: str) -> list[tuple[str, str]]:
        """Tell it twice; return what a monitor has to know then."""
        for _ in range(2):
            self.world.run(own.flow_opened(KEYS, "cut", opened, outcome))
        return [(one.outcome, one.id) for one in tell_all(self.world)]

    def ack(self) -> list[tuple[str, str]]:
        self.world.run(ops.settle(KEYS, "w", 60.0, [element("cut")]))
        return [(one.outcome, one.id) for one in tell_all(self.world)]

    @property
    def ready(self) -> list[bytes]:
        return self.world.redis.lrange(KEYS.messages, 0, -1)


@pytest.fixture
def cutting(world: World, flow: Flow) -> Cutting:
    return Cutting(world, flow)


def test_a_member_ends_with_the_flows_that_its_handler_has_opened(world: World, cutting: Cutting):
    assert cutting.hold("a1", "a1", "b2") == ["ok"] * 3
    assert world.redis.hget(KEYS.followed, "\v\vcut") == b"flow 0 a1 b2\n0 end\n"
    assert (cutting.ack(), cutting.ready) == ([], [])
    assert (cutting.told("a1", "acked"), cutting.ready) == ([], [])
    assert (cutting.told("b2", "open"), cutting.ready) == ([], [])
    assert (cutting.told("b2", "acked"), cutting.ready) == ([("acked", "cut")], [element("end")])
    assert work_off(world) == ["end"]
    tell_all(world)
    nothing_is_left(world)


def test_flows_that_have_ended_before_their_member_hold_nothing(world: World, cutting: Cutting):
    cutting.hold("a1")
    assert cutting.told("a1", "acked") == []
    assert world.redis.hget(KEYS.followed, "\v\vcut") == b"flow 0\n0 end\n"
    assert (cutting.ack(), cutting.ready) == ([("acked", "cut")], [element("end")])


def test_a_flow_that_stands_still_makes_its_member_dead_until_it_goes_on(world: World, cutting: Cutting):
    cutting.hold("a1", "b2")
    assert cutting.ack() == []
    assert cutting.told("a1", "dead") == []
    assert cutting.told("b2", "acked") == [("dead", "cut")]
    assert cutting.told("a1", "open") == [("revived", "cut")]
    assert cutting.told("a1", "dead") == [("dead", "cut")]
    assert (cutting.told("a1", "acked"), cutting.ready) == ([("acked", "cut")], [element("end")])


def test_a_flow_that_stands_still_when_its_member_is_handled(world: World, cutting: Cutting):
    cutting.hold("a1")
    assert cutting.told("a1", "dead") == []
    assert cutting.ack() == [("dead", "cut")]
    assert (cutting.told("a1", "acked"), cutting.ready) == ([("acked", "cut")], [element("end")])


def test_a_flow_that_has_failed_fails_its_member_once_all_have_come_to_an_end(world: World, cutting: Cutting):
    cutting.hold("a1", "b2")
    assert (cutting.ack(), cutting.told("a1", "cancelled")) == ([], [])
    assert cutting.told("b2", "dead")[:1] == [("cancelled", "cut")]
    assert world.redis.hget(KEYS.followed, "\v\vcut") is None
    assert cutting.told("b2", "acked") == []


def test_a_consumer_that_does_not_hold_the_message_opens_nothing(world: World, cutting: Cutting):
    assert cutting.hold("a1", consumer="another") == ["lost"]
    cutting.ack()
    assert cutting.hold("a1") == ["lost"]
    assert world.redis.hget(KEYS.followed, "\v\vcut") is None


def test_a_member_whose_handler_has_opened_a_flow_is_noted_once(world: World, flow: Flow, cutting: Cutting):
    cutting.hold("a1")
    flow.note()
    assert world.redis.hget(KEYS.followed, "\v\vcut") == b"flow 0 a1\n0 end\n"


def test_a_queue_without_flows_has_none_of_it(world: World):
    send(world, "a", "b")
    assert work_off(world) == ["a", "b"]
    nothing_is_left(world)


def test_a_fan_in_of_ten_thousand(world: World):
    ids = [new_id() for _ in range(10_000)]
    assert world.run(own.flow_wait(KEYS, "flow", next(STEPS), [("end", 10_000, "fail")])) == []
    world.run(ops.enqueue(KEYS, [], [Entry("end", element("end"), 0.0, None, 0.0)]))
    raw = [element("a", id=one) for one in ids]
    for at in range(0, len(raw), 1000):
        part = enumerate(ids[at : at + 1000], at)
        some = [Noted(one, "flow 1", behind=[Behind(place, "end", "")]) for place, one in part]
        world.run(own.flow_note(KEYS, some))
        world.run(ops.enqueue(KEYS, raw[at : at + 1000]))
    world.given(leases={"w": 600_000})
    began, last = time.perf_counter(), 0.0
    while claimed := world.run(ops.claim(KEYS, "w", 600.0, 100)).elements:
        if claimed == [element("end")]:
            print(f"10,000 acked in {last - began:.2f} s, the end claimed {time.perf_counter() - last:.4f} s later")
        world.run(ops.settle(KEYS, "w", 600.0, claimed, row=len(claimed)))
        last = time.perf_counter()
    nothing_is_left(world)
