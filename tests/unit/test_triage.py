"""The order and the states of the queues on the dashboard's first page."""

from dataclasses import replace

import pytest

from reliq.model.stats import Stats
from reliq_api.ui import triage

CALM = Stats("orders", 0, 0, 0, 0, 0, 0.0, consumers=1, paused=False)


@pytest.mark.parametrize(
    ("stats", "wanted"),
    [
        (CALM, ["running"]),
        (replace(CALM, ready=100_000, consumers=2), ["running"]),
        (replace(CALM, consumers=0), ["idle"]),
        (replace(CALM, ready=1, consumers=0), ["unattended"]),
        (replace(CALM, ready=1, consumers=0, processing=1), ["running"]),
        (replace(CALM, ready=1, consumers=0, paused=True), ["paused"]),
        (replace(CALM, ready=1, oldest_ready_age=301.0), ["late"]),
        (replace(CALM, ready=1, oldest_ready_age=301.0, paused=True), ["paused"]),
        (replace(CALM, dead=1), ["dead"]),
        (replace(CALM, breaker="half_open", limited_by="breaker"), ["breaker"]),
        (replace(CALM, limited_by="rate"), ["limited"]),
        (replace(CALM, ready=6, delayed=4, max_length=11), ["full"]),
        (replace(CALM, ready=6, delayed=3, max_length=11), ["running"]),
        (replace(CALM, dead=1, paused=True, unseen=2), ["away", "dead", "paused"]),
    ],
)
def test_a_queue_says_what_is_wrong_with_it_the_worst_first(stats, wanted):
    assert [one.name for one in triage.states(stats)] == wanted


def test_the_queues_are_ordered_by_trouble_then_name():
    found = {
        "a": replace(CALM, queue="a"),
        "b": replace(CALM, queue="b", dead=1),
        "c": replace(CALM, queue="c", paused=True),
        "d": replace(CALM, queue="d", dead=9),
        "e": replace(CALM, queue="e", unseen=1),
    }
    assert [one.queue for one in triage.chosen(found, "", "", "trouble")] == ["e", "b", "d", "c", "a"]
    assert [one.queue for one in triage.chosen(found, "", "", "dead")] == ["d", "b", "a", "c", "e"]
    assert [one.queue for one in triage.chosen(found, "", "", "name")] == ["a", "b", "c", "d", "e"]
    assert [one.queue for one in triage.chosen(found, "", "dead", "name")] == ["b", "d"]
    assert [one.queue for one in triage.chosen(found, "D", "dead", "name")] == ["d"]


def test_the_states_are_counted():
    found = [CALM, replace(CALM, dead=1, paused=True), replace(CALM, paused=True)]
    assert {one.name: count for one, count in triage.counts(found).items()} == {"dead": 1, "paused": 2, "running": 1}


def test_the_page_and_the_alert_agree_on_when_a_message_is_too_old():
    from pathlib import Path

    rules = Path("monitor/prometheus/rules.yml").read_text()
    assert f"reliq_queue_oldest_ready_age_seconds) > {triage.OLDEST:.0f} unless" in rules
