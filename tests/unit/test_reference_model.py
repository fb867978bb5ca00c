"""The reference model: small enough to read, and in step with the state chart of the scripts."""

import ast
import re
from pathlib import Path

import pytest

from tests.reference import flows, model, moves

ROOT = Path(__file__).parents[2]
SOURCE = Path(model.__file__)


def test_the_reference_model_stays_readable_and_imports_only_the_contract():
    texts = [one.read_text(encoding="utf-8") for one in SOURCE.parent.glob("*.py")]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    assert len(SOURCE.read_text(encoding="utf-8").splitlines()) <= 600
    assert {one for one in modules if one.startswith("reliq")} == {
        "reliq.contract.counters",
        "reliq.contract.outcomes",
        "reliq.contract.settings",
    }


def test_the_moves_of_the_model_are_the_edges_of_the_state_chart():
    chart = re.findall(
        r"^    (\S+) --> (\S+): ", (ROOT / "reliq/lua/README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    edges = {tuple(model.GONE if one == "[*]" else one for one in edge) for edge in chart}
    assert {move for some in moves.MOVES.values() for move in some} == edges


def test_each_outcome_is_a_move_of_a_settlement_or_a_reclaim():
    steps = ("settle", "EXEC", "ask", "commit_roll", "park")
    targets = {to for step in steps for _, to in moves.MOVES[step]}
    assert {one.to for one in model.OUTCOMES.values()} <= targets


def test_a_message_behind_another_of_its_key_is_ready_when_that_one_has_ended():
    queue = model.System().queue("q")
    first, second = (model.Message(one, options={"key": "k"}) for one in "ab")
    queue.send(first, second)
    assert (first.place, second.place) == (model.READY, model.WAITING)
    queue.claim("a", "w")
    queue.settle("a", "ack")
    assert second.place == model.READY


def test_a_batch_ends_when_its_last_message_has():
    system = model.System()
    system.batches["b"] = model.Batch("b", state="closed", ends={"done": ("ends", model.Message("end"))})
    system.queue("q").send(model.Message("a", batch="b"))
    assert system.end_batches() == []
    system.queue("q").cancel("a")
    assert (system.end_batches(), list(system.queue("ends").messages)) == (["b"], ["end"])


def flow_of(system, *after, parent=None, rule="fail"):
    """A flow of messages `0`, `1` and so on (of one with a parent `p0`, `p1`), by those that each waits for."""
    name = "p" if parent else ""
    members = [flows.Member("q", f"{name}{number}", before, rule) for number, before in enumerate(after)]
    system.send_flow(flows.Flow(members, parent=parent), [model.Message(one.id) for one in members])
    return system.queue("q")


def handle(queue, *ids):
    for one in ids:
        queue.claim(one, "w")
        queue.settle(one, "ack")


def places(queue):
    return {one.id: one.place for one in queue.messages.values()}


def test_a_member_of_a_flow_is_ready_when_the_last_one_before_it_is_handled():
    queue = flow_of(model.System(), (), (), (0, 1))
    handle(queue, "0")
    assert places(queue) == {"1": model.READY, "2": model.WAITING}
    handle(queue, "1")
    assert places(queue) == {"2": model.READY}


@pytest.mark.parametrize(
    ("rule", "behind_dead", "behind_lost"),
    [
        ("fail", model.WAITING, model.DEAD),
        ("skip", model.GONE, model.GONE),
        ("run", model.READY, model.READY),
    ],
)
def test_a_monitor_tells_of_failures(rule, behind_dead, behind_lost):
    system = model.System()
    queue = flow_of(system, (), (0,), rule=rule)
    queue.claim("0", "w")
    queue.settle("0", "rejected")
    assert places(queue)["1"] == model.WAITING
    system.tell_flows()
    assert places(queue).get("1", model.GONE) == behind_dead
    assert system.flows.stands_still("q", "1") == (rule == "fail")
    queue.discard("0")
    system.tell_flows()
    assert places(queue).get("1", model.GONE) == behind_lost


def test_messages_behind_a_handler_wait_for_the_flow_that_it_has_opened():
    system = model.System()
    queue = flow_of(system, (), (0,))
    queue.claim("0", "w")
    flow_of(system, (), (0,), parent=("q", "0"))
    queue.settle("0", "ack")
    handle(queue, "p0", "p1")
    assert places(queue) == {"1": model.WAITING}
    system.tell_flows()
    assert places(queue) == {"1": model.READY}
    handle(queue, "1")
    system.tell_flows()
    assert system.flows.open == []


def test_a_charge_counts_in_place_of_the_cost():
    system = model.System()
    queue = system.queue("q")
    queue.configure(rate="1/s", burst=5)
    queue.send(*(model.Message(one, options={"cost": 4}) for one in "abc"))
    queue.claim("a", "w")
    assert queue.obstacle("b") == "a rate is used up"
    queue.charge("a", 1)
    assert queue.obstacle("b") == ""
    queue.charge("a", 9)
    system.passes(7)
    assert queue.obstacle("b") == "a rate is used up"
    system.passes(1)
    assert queue.obstacle("b") == ""
