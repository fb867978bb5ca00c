"""The benchmark suite, with tiny volumes: its own contestants run, its rows have a verdict."""

import dataclasses
import re

import pytest

from bench import __main__ as main
from bench.suite import asked, consume, growth, idle, latency, long, memory, report, send, slots, weight, whole
from bench.suite.contestants import BENCH, RAW, RELIQ, Contestant, Failed, rate_of
from bench.suite.harness import Check, Row, Setting
from bench.suite.weighing import Ordered

TINY = Setting(rounds=1, scale=0.004)


def here(contestant: Contestant) -> Contestant:
    """The same in this test's own virtual environment."""
    return dataclasses.replace(contestant, environment="")


LOOP = Contestant("loop", "with_redis.py", 50_000, variant="lmove", kind="hand")
ABSENT = Contestant("absent", "with_rq.py", 100, environment="no-such-environment")


def test_a_race_counts_every_run_of_those_who_are_there_and_names_those_who_are_not():
    race = consume.Race(TINY, (here(RAW), here(RELIQ), LOOP, ABSENT))
    race.run()
    assert set(race.rates) == {RAW.name, RELIQ.name, "loop"}
    assert all(rate > 0 for rates in race.rates.values() for rate in rates)
    assert "not installed" in race.absent["absent"]
    row = consume.one_process(race)
    assert row.verdict in ("ok", "missed")
    told = report.text([row], race, {}, 1.0)
    assert "absent" in told
    assert "reliq / raw limit" in told


def test_a_contestant_that_ran_more_or_fewer_than_were_sent_has_failed():
    answers = [{"runs": 2, "first": 1.0, "last": 2.0}, {"runs": 2, "first": 1.5, "last": 2.5}]
    assert rate_of(answers, 4, "both") == pytest.approx(2.0)
    with pytest.raises(Failed, match="5 messages, but 4 runs"):
        rate_of(answers, 5, "both")


def test_a_verdict_says_how_much_is_missing():
    assert str(Check("ratio", [0.3], 0.6)).endswith("missed, 0.50 of it")
    assert str(Check("ratio", [0.7], 0.6)).endswith("ok")
    assert Row("all", [Check("a", [1.0], 1), Check("b", [3.0], 2, at_least=False)]).verdict == "missed"
    assert Row("none").verdict == "not measured"


def test_a_message_costs_what_the_figures_allow_and_leaves_nothing():
    assert memory.row(Setting(scale=0.5)).verdict == "ok"


def test_sending_and_latency_are_measured():
    rows = [*send.rows(TINY), latency.idle(Setting(scale=0.02))]
    assert all(check.value > 0 for row in rows for check in row.checks)


def test_every_figure_of_the_weight_of_a_body_is_measured():
    rows = weight.rows(TINY, (here(weight.RELIQ), here(weight.STREAMS), ABSENT), sizes=(200, 4096))
    assert [row.what for row in rows if len(row.checks) < 2] == []
    assert all(check.value > 0 for row in rows for check in row.checks)
    assert any(note.startswith("absent: not installed") for row in rows for note in row.notes)


def test_a_contestant_that_ends_without_an_answer_says_why(url):
    with (
        Ordered(here(dataclasses.replace(weight.RELIQ, variant="unknown")), url) as process,
        pytest.raises(Failed, match="KeyError: 'unknown'"),
    ):
        process.order("start")


@pytest.mark.parametrize(("build", "act"), [one[1::2] for one in growth.DIMENSIONS], ids=lambda one: one.__name__)
def test_each_state_of_the_growth_is_built_and_its_commands_are_named(build, act, monkeypatch):
    monkeypatch.setattr(growth, "_LOGGED_MICROS", 0)
    with growth.state(build, 20) as (app, client):
        assert client.dbsize() > 0
        longest = growth.Longest(client)
        act(app, client)
        failed = growth.call_everything(app)
        assert {"enqueue.lua", "claim.lua", "purge.lua", "tracking/sweep.lua"} <= longest.found().keys()
        assert failed == []
        assert client.exists("reliq:{bench}:messages") == 0


def test_a_claim_within_limits_is_measured_beside_few_consumers_and_beside_many():
    rows = slots.rows(Setting(scale=0.001))
    assert [row.what for row in rows] == ["limits: concurrency, 8 consumers", "limits: concurrency, 100 consumers"]
    assert all(row.figures["us"] > 0 for row in rows)


def test_the_growth_of_one_state_is_measured_with_a_monitor():
    (one,) = growth.rows(Setting(scale=0.02), seconds=0.5, only=["open batches"])
    assert one.what == "growth: open batches 20"
    assert one.figures["idle"]["many"] > 0


def test_each_figure_that_is_asked_for_is_of_a_part_and_the_table_says_what_was_not_measured():
    parts = main.parts(consume.Race(TINY, ()))
    assert parts.keys() >= asked.PARTS
    every = [one for some in asked.TABLE.values() for one in some]
    assert {one.row for one in every if one.part == "long"} <= {f"long: {case.name}" for case in long.CASES}
    rows = [
        Row("idle: workers of 64 partitions, 20", [Check("commands/s", [231.0], 9.0, at_least=False)]),
        Row("latency idle, send -> handler starts, 12 partitions", [Check("p50 / bare", [2.0], 9.0, at_least=False)]),
        Row("latency idle, send -> handler starts", [Check("p50 / bare", [1.0], 9.0, at_least=False)]),
    ]
    told = asked.table(rows)
    assert re.search(r"workers of 64 partitions, 20: commands/s +3,062 +<= 300 +231 ok +--only idle\n", told)
    assert re.search(r"handler starts: p50 +1.4 +<= 1.1 +1 ok ", told)
    assert re.search(r"handler starts, 12 partitions: p50 +<= 1.1 +2 missed ", told)
    assert told.count("not measured") == len(every) - 3


def test_the_page_on_growth_names_each_part_that_measures_it():
    page = (BENCH.parent / "docs" / "benchmarks" / "growth.md").read_text(encoding="utf-8")
    assert [part for part in sorted(asked.PARTS) if f"`{part}`" not in page] == []


@pytest.mark.celery
def test_a_send_of_celery_is_measured_beside_the_redis_transport():
    (row,) = whole.sends_of_celery(TINY)
    assert all(check.value > 0 for check in row.checks)


def test_an_idle_worker_is_measured_when_it_has_started(monkeypatch):
    monkeypatch.setattr(idle, "_WATCHED", 1.0)
    row = idle._workers(4, 1, 5.0, rest=1.0)
    assert row.what == "idle: a worker of 4 partitions"
    assert all(check.value > 0 for check in row.checks)
