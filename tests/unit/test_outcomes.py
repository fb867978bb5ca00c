"""Every move of the library, the script `settle`, HTTP and the pages have the outcomes of the table."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from reliq.contract import counters
from reliq.contract.counter_names import Counter
from reliq.contract.counters import COUNTERS
from reliq.contract.outcomes import DEAD_LETTERED, DEATHS, OUTCOMES, REASONS, Destination, Outcome, Settled, Stored
from reliq_api import schemas
from reliq_api.consume import leases

ROOT = Path(__file__).resolve().parents[2]
LUA = ROOT / "reliq" / "lua"
HEADER, _, CODE = (LUA / "settle.lua").read_text(encoding="utf-8").partition("-- uses:")
BY_NAME = {one.name: one for one in OUTCOMES}
FOLDERS = ("reliq", "api", "monitor/reliq_monitor")


def moves() -> list[tuple[str, ast.FunctionDef]]:
    """Return the functions that make a Move, by their names."""
    return [
        (f"{path.stem}.{function.name}", function)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "Move(" in (source := path.read_text(encoding="utf-8"))
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef) and "Move(" in ast.unparse(function)
    ]


@pytest.mark.parametrize(("name", "function"), moves(), ids=lambda one: one if isinstance(one, str) else "")
def test_a_move_has_a_counter_and_the_destinations_of_its_outcome(name, function):
    text = ast.unparse(function)
    made = {"dead_lettered" if one == "dead" else one.lower() for one in re.findall(r"Counter\.(\w+)", text)}
    to = {getattr(Destination, one) for one in re.findall(r"Destination\.(\w+)", text)}
    assert made <= set(BY_NAME), name
    assert to <= {one for counter in made for one in BY_NAME[counter].destinations}, name
    reasons = set(re.findall(r"(?:Counter\.dead|buried)\((?:.*, )?'(\w+)'\)", text))
    assert reasons <= set(REASONS), name


def test_each_outcome_is_decided_somewhere_and_goes_to_each_of_its_destinations():
    texts = [ast.unparse(function) for _, function in moves()]
    for one in OUTCOMES:
        counter = "Counter.dead(" if one.name == DEAD_LETTERED else f"Counter.{one.name.upper()}"
        found = {to for text in texts if counter in text for to in re.findall(r"Destination\.(\w+)", text)}
        assert {to.name for to in one.destinations} <= found, one.name


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda one: one.name)
def test_an_outcome_has_a_counter_and_says_when_it_is_decided(outcome: Outcome):
    counter = counters.BY_NAME[outcome.name]
    assert counter.event or outcome.name == Counter.BLANKS_PASSED
    assert outcome.text[0].islower()
    assert not outcome.text.endswith(".")
    assert bool(outcome.verb) != bool(outcome.no_verb)


def test_the_header_of_the_script_names_each_destination_and_each_code():
    (listed,) = re.findall(r"destination: ((?:.+\n)+?)-- Returns", HEADER)
    named = re.findall(rf"\b(?:{'|'.join(Destination)})\b", re.sub(r"\([^()]*\)", "", listed))
    assert set(named) == set(Destination)
    assert re.findall(r"\b([a-z]) = ", HEADER.partition("-- Returns")[2]) == list(Settled)


def test_the_script_knows_each_destination():
    named = set(re.findall(r"destination == '(\w+)'", CODE)) | set(re.findall(r"else -- (\w+), (\w+)", CODE)[0])
    assert named == set(Destination)


def test_what_the_script_stores_for_who_waits_is_a_letter_of_a_result():
    (said,) = re.findall(r"destination == 'dead' and '(\w)' or '(\w)'", CODE)
    assert [one.encode() for one in said] == [Stored.DEAD.value, Stored.CANCELLED.value]
    (returned,) = re.findall(r"string\.find\(stored, '\^\[(\w+)\]'\)", (LUA / "shared/results.lua").read_text())
    assert returned.encode() == Stored.JSON.value + Stored.BYTES.value


def test_a_settle_over_http_has_each_verb_and_each_code():
    verbs = {one.verb for one in OUTCOMES if one.verb}
    assert set(schemas.SettleRequest.model_fields) == verbs
    assert set(get_args(leases.Outcome.__annotations__["verb"])) == verbs
    assert set(get_args(schemas.Settled.model_fields["code"].annotation)) == {one.code for one in Settled}


def test_each_reason_is_one_of_the_answers_over_http():
    assert get_args(schemas.base.DeathReason) == REASONS


def test_what_the_scripts_note_is_an_event_of_the_table():
    noted = {
        found
        for path in sorted(LUA.parent.rglob("*.lua"))
        for call in re.findall(
            r"\b(?:note|note_all|forget|have_left|has_died)\(q, (.+)\)", path.read_text(encoding="utf-8")
        )
        for found in re.findall(r"'([a-z_:]+)'", call)
    }
    assert len(noted) > 5
    events = {one.name for one in COUNTERS if one.event} | {Counter.dead(reason) for reason in REASONS}
    assert noted - events == set()


PAGES = ("docs/runbooks/messages-dying.md", "docs/how-to/retries.md", "monitor/grafana/dashboards/reliq-queue.json")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("reason", DEATHS, ids=lambda one: one.name)
def test_each_reason_is_on_the_pages_about_dead_letters(reason, page):
    assert re.search(rf"\b{reason.name}\b", (ROOT / page).read_text(encoding="utf-8"))
