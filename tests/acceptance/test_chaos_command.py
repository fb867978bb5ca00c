"""`reliq chaos`: it does the harm it says, finds what is lost, and leaves nothing on a Redis that others use."""

import json
import threading

import pytest

from reliq.cli import main
from reliq.cli.trials.chaos_report import lost_and_runs
from reliq.cli.trials.processes import WorkerProcess
from reliq.ops import command
from tests.support.workers import eventually, process

pytestmark = pytest.mark.campaign

SMALL = ("--workers", "3", "--pauses", "1", "--lease", "1", "--json")


def outcome(child):
    out, err = child.communicate(timeout=120)
    return child.returncode, out.decode(), err.decode()


def keys(app):
    return {key for key in app.store.call(command("KEYS", "*")) if b"reliq:monitor:" not in key}


def chaos_queue(app):
    return next((one for one in app.queues() if one.startswith("chaos-")), None)


def test_nothing_is_lost_and_the_report_says_what_was_done():
    with process("chaos", "--messages", "2000", "--kills", "4", *SMALL) as child:
        status, out, err = outcome(child)
    report = json.loads(out)
    assert (status, err) == (0, "")
    assert (report["messages"], report["lost"], report["unhandled"]) == (2000, 0, 0)
    assert (report["killed"]["workers"], report["paused"]["workers"]) == (4, 1)
    held = report["killed"]["held"] + report["paused"]["held"]
    assert held > 0
    assert report["redelivered"] > 0
    assert report["extra_runs"] <= report["redelivered"]
    for faults in (report["killed"], report["paused"]):
        assert faults["held"] == 0 or 0 < faults["recovery_p50"] <= faults["recovery_max"]


def test_a_given_redis_keeps_what_it_has_and_nothing_of_ours(app):
    app.queue("orders").send_many(["a", "b"])
    app.queue("orders").configure(max_length=10)
    before = keys(app)
    with process("chaos", "--messages", "300", "--kills", "1", *SMALL, "--url", app.url) as child:
        status, _, err = outcome(child)
    assert (status, err) == (0, "")
    assert keys(app) == before
    assert app.queue("orders").stats().ready == 2


def test_a_message_that_somebody_took_away_is_found_missing(app):
    with process("chaos", "--messages", "3000", "--kills", "1", *SMALL, "--url", app.url) as child:
        queue = eventually(lambda: chaos_queue(app), timeout=60)
        eventually(lambda: app.store.call(command("RPOP", f"reliq:{{{queue}}}:messages")), timeout=60)
        status, out, err = outcome(child)
    assert (status, err) == (1, "reliq: not every message was handled\n")
    assert json.loads(out)["lost"] == 1


def test_when_the_time_is_up_what_is_still_in_the_queue_is_not_lost(app):
    with process("chaos", "--messages", "100000", "--kills", "1", "--time", "2", *SMALL, "--url", app.url) as child:
        status, out, _ = outcome(child)
    report = json.loads(out)
    assert status == 1
    assert report["lost"] == 0
    assert report["unhandled"] > 0
    assert keys(app) == set()


def test_a_worker_that_cannot_run_ends_it_with_what_it_said(app, monkeypatch, capsys):
    monkeypatch.setattr("reliq.cli.trials.chaos._WORK", "no number")
    assert main.main(["chaos", "--messages", "10", "--url", app.url]) == 1
    assert "a worker ended unexpectedly" in capsys.readouterr().err
    assert keys(app) == set()
    assert [one.name for one in threading.enumerate() if one.name == "reliq-monitor"] == []


def test_a_worker_that_was_paused_ends_when_it_is_told_to_as_it_goes_on(app, tmp_path):
    """The system may give the signal to whichever of its threads has woken, and that need not be the main one."""
    for _ in range(3):
        history = tmp_path / "history"
        history.touch()
        worker = WorkerProcess(
            app.url,
            "reliq.cli.trials.chaos_app:app",
            tmp_path / "log",
            "--no-monitor",
            RELIQ_CHAOS_HISTORY=str(history),
        )
        eventually(lambda: app.queue("chaos").stats().consumers == 1, timeout=60)
        worker.pause()
        worker.ask_to_stop()
        assert worker.process.wait(60) == 0
        worker.stop()


def test_for_people_it_prints_a_table(app, capsys):
    assert (
        main.main(["chaos", "--messages", "50", "--kills", "0", "--pauses", "0", "--workers", "1", "--url", app.url])
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("50 messages, 1 workers, ")
    assert out.endswith("  lost                    0\n\nNothing was lost.\n")


@pytest.mark.parametrize(
    "wrong", ["--messages 0", "--workers 0", "--kills -1", "--pauses 101", "--lease 0.1", "--time 0", "--kills x"]
)
def test_what_makes_no_sense_is_refused(wrong, capsys):
    try:
        status: str | int | None = main.main(["chaos", *wrong.split()])
    except SystemExit as refused:
        status = refused.code
    assert status == 2
    assert wrong.split()[0].lstrip("-") in capsys.readouterr().err


def test_who_asks_for_a_scenario_is_told_where_the_campaign_is(capsys):
    with pytest.raises(SystemExit) as refused:
        main.main(["chaos", "--seed", "7", "--scenario", "sigkill"])
    assert refused.value.code == 2
    assert "run `python -m tests.campaign --scenario list` in a checkout" in capsys.readouterr().err


def test_lost_is_what_no_run_ended_of_and_is_nowhere(tmp_path):
    history = tmp_path / "history"
    history.write_text("start a\nend a\nstart b\nstart b\nend b\nstart c\nstart d\n")
    assert lost_and_runs(history, ["a", "b", "c", "d", "e", "f"], {"d", "f"}) == ({"c", "e"}, 2, 1)
