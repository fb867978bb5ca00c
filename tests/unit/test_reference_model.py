"""The reference model: small enough to read, and in step with the state chart of the scripts."""

import ast
import re
from pathlib import Path

from tests.reference import model, moves

ROOT = Path(__file__).parents[2]
SOURCE = Path(model.__file__)


def test_it_stays_readable_and_imports_only_the_contract():
    text = SOURCE.read_text(encoding="utf-8")
    modules = [node.module or "" for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    assert len(text.splitlines()) <= 600
    assert {one for one in modules if one.startswith("reliq")} == {
        "reliq.contract.counters",
        "reliq.contract.outcomes",
        "reliq.contract.settings",
    }


def test_its_moves_are_the_edges_of_the_state_chart():
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
