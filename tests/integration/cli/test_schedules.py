"""`reliq schedule`: the same names as in Python."""

import json

import pytest

from reliq.cli import main


@pytest.fixture
def run(url, capsys):
    def call(*arguments, status=0):
        assert main.main([*arguments, "--url", url]) == status
        return capsys.readouterr()

    return call


def test_a_schedule_from_its_start_to_its_end(run, app):
    added = json.loads(run("schedule", "add", "s", "30 2 * * *", "q", '{"a":1}', "--tz", "Europe/Berlin", "--json").out)
    assert (added["name"], added["queue"], added["when"], added["tz"]) == ("s", "q", "30 2 * * *", "Europe/Berlin")
    assert app.schedules.get("s").body == b'{"a":1}'
    ticks = json.loads(run("schedule", "preview", "s", "--count", "3", "--json").out)
    assert len(ticks) == 3
    assert ticks[0] == added["next_tick"]
    assert "never run" in run("schedule", "list").out
    identity = run("schedule", "run", "s").out.strip()
    assert identity.startswith("s@")
    assert [one["last_id"] for one in json.loads(run("schedule", "list", "q", "--json").out)] == [identity]
    run("config", "other", "max_length=10")
    assert json.loads(run("schedule", "list", "other", "--json").out) == []
    assert run("schedule", "pause", "s").out == "paused\n"
    assert " paused " in run("schedule", "list").out
    assert "paused" in run("schedule", "preview", "s").out
    assert ticks[0][:10] in run("schedule", "resume", "s").out
    assert run("schedule", "remove", "s").out == "removed\n"
    assert "no schedule 's'" in run("schedule", "remove", "s", status=1).out
    assert run("schedule", "list").out == "0 schedules\n"


def test_all_options_reach_the_definition(run, app):
    run(
        "schedule", "add", "s", "1h", "q", "x", "--start", "2030-01-01", "--end", "2031-01-01", "--jitter", "5m",
        "--catch-up", "all", "--catch-up-limit", "7", "--key", "k", "--priority", "high", "--ttl", "2h",
        "--header", "a=b", "--limit-key", "k",
    )  # fmt: skip
    found = app.schedules.get("s").definition
    assert (found.jitter, found.catch_up, found.catch_up_limit) == (300_000, "all", 7)
    assert (found.limit_key, found.key, found.priority, found.ttl, found.headers) == (
        "k",
        "k",
        "high",
        7200.0,
        {"a": "b"},
    )
    assert found.start is not None
    assert found.end is not None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["add", "s", "0 0 31 2 *", "q"], "'0 0 31 2 *' never fires"),
        (["add", "s", "30s", "q", "--tz", "Mars/Olympus"], "'Mars/Olympus' is unknown"),
        (["add", "s", "30 parsecs", "q"], "'30 parsecs'"),
        (["add", "a b", "30s", "q"], "schedule name 'a b'"),
        (["add", "s", "30s", "q", "--start", "2031-01-01", "--end", "2030-01-01"], "before its start"),
    ],
)
def test_a_mistake_is_one_clear_line(run, app, arguments, says):
    printed = run("schedule", *arguments, status=2)
    assert says in printed.err
    assert len(printed.err.splitlines()) == 1
    assert app.schedules.list() == []


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "preview", "remove"])
def test_a_command_about_a_schedule_that_does_not_exist_exits_1(run, app, verb):
    printed = run("schedule", verb, "nothing", status=1)
    assert "no schedule 'nothing'" in printed.out + printed.err
    assert app.schedules.list() == []


def test_one_schedule_is_counted_in_the_singular(run):
    run("schedule", "add", "s", "1h", "q", "x")
    assert run("schedule", "list").out.splitlines()[-1] == "1 schedule"
