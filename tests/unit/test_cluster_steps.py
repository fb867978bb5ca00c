"""Which nodes of a cluster are asked: given what they answer, want the next node, the answer or the error."""

import time

import pytest

from reliq.errors import OutcomeUnknown, QueueFull, RedisUnavailable, RedisUnsuitable, ReliqError
from reliq.ops import command
from reliq.ops.topology import ANY, Part, Slots
from reliq.transport.cluster_steps import answers_to, current_slots
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.server import Server

A, B, C = ("a", 1), ("b", 2), ("c", 3)
READ, WRITE = command("GET", "k"), command("SET", "k", "v")
ONCE = command("INCR", "k", repeatable=False)


class Cluster(Server):
    """The server as the steps know it."""

    where = "here"

    def __init__(self, slots=None, away=()):
        self.slots = slots
        self._away = {node: (time.monotonic() + 60, "test") for node in away}

    def known_nodes(self):
        return [A, B, C]

    def masters(self):
        return [A, B, C]

    def learn(self, slots):
        self.slots = slots


def run(steps, *replies):
    """Run steps against these replies; return the nodes asked, and the answer or the error."""
    asked, left = [], list(replies)
    try:
        node, _ = next(steps)
        while True:
            asked.append(node)
            reply = left.pop(0)
            node, _ = steps.throw(reply) if isinstance(reply, Exception) else steps.send(reply)
    except StopIteration as stop:
        return asked, stop.value
    except (ReliqError, ConnectionLost, TryAgain) as error:
        return asked, error


def lost(sent=False):
    return ConnectionLost(sent=sent, cause="test")


def test_a_cached_slot_map_asks_no_node():
    slots = Slots([], A)
    assert run(current_slots(Cluster(slots), ())) == ([], slots)


def test_nodes_that_did_not_answer_shortly_before_are_asked_last():
    slots = Slots([], A)
    assert run(current_slots(Cluster(away=[A]), {A}), slots) == ([B], slots)
    assert run(answers_to([Part(ANY, READ)], Cluster(slots, away=[A, B])), "found") == ([C], ["found"])


def test_the_slot_map_is_read_from_connected_nodes_first_and_cached():
    cluster, slots = Cluster(), Slots([], A)

    assert run(current_slots(cluster, {C}), lost(), RedisUnavailable("loading"), slots) == ([C, A, B], slots)
    assert cluster.slots is slots


def test_without_a_node_that_answers_the_last_failure_is_raised():
    last = TryAgain("busy")
    assert run(current_slots(Cluster(), ()), lost(), lost(), last) == ([A, B, C], last)


def test_a_request_whose_slot_map_got_no_answer_has_not_been_sent():
    _, error = run(current_slots(Cluster(), ()), lost(sent=True), lost(sent=True), lost(sent=True))
    assert not error.sent


def test_a_server_without_slots_is_no_cluster():
    asked, error = run(current_slots(Cluster(), ()), ReliqError("cluster support disabled"))

    assert asked == [A]
    assert isinstance(error, RedisUnsuitable)


def test_each_part_goes_to_its_node():
    assert run(answers_to([Part(B, READ), Part(A, WRITE)], Cluster()), "one", "two") == ([B, A], ["one", "two"])


def test_a_request_without_keys_goes_to_the_first_node_that_is_reached():
    assert run(answers_to([Part(ANY, READ)], Cluster()), lost(), "pong") == ([A, B], ["pong"])


def test_a_request_without_keys_that_was_sent_goes_to_no_second_node():
    failure = lost(sent=True)
    assert run(answers_to([Part(ANY, WRITE)], Cluster()), failure) == ([A], failure)


@pytest.mark.parametrize(("first", "sent"), [(READ, False), (WRITE, True)])
@pytest.mark.parametrize("failure", [ConnectionLost, TryAgain])
def test_a_failure_says_that_an_earlier_part_was_carried_out(first, sent, failure):
    error = lost() if failure is ConnectionLost else TryAgain("busy")

    run(answers_to([Part(A, first), Part(B, WRITE)], Cluster()), "done", error)

    assert error.sent is sent


@pytest.mark.parametrize(("parts", "error"), [
    ([Part(A, WRITE)], QueueFull),
    ([Part(B, READ), Part(A, WRITE)], QueueFull),
    ([Part(B, WRITE), Part(A, WRITE)], OutcomeUnknown),
    ([Part(B, ONCE), Part(A, WRITE)], QueueFull),
])  # fmt: skip
def test_a_full_node_after_another_that_was_not_full_leaves_the_outcome_unknown(parts, error):
    replies = ["done"] * (len(parts) - 1)

    _, raised = run(answers_to(parts, Cluster()), *replies, QueueFull("full"))

    assert type(raised) is error
