"""The pages about schedules."""

import re
from html import unescape

import pytest
from playwright.sync_api import expect

from reliq.features.schedules import ops as own
from reliq.features.schedules.steps import ScheduleSteps
from reliq.features.schedules.ui import FATES
from reliq_api.access import keyring
from tests.support.hooked import beginning

ATTACK = '"><svg/onload=alert(2)>'


def text_of(answer):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", answer.text)))


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_a_schedule_is_shown_run_paused_resumed_and_removed(app, look, script):
    app.schedules.add("daily", "0 7 * * *", "reports", "x", tz="Europe/Berlin")
    page = look("/", java_script_enabled=script)
    page.get_by_role("link", name="Schedules").click()
    page.get_by_role("link", name="daily").click()
    expect(page.locator("ol.mono li")).to_have_count(10)
    expect(page.get_by_text("It has not run yet.")).to_be_visible()
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("It is ready: no worker has taken it yet.")).to_be_visible()
    assert app.queue("reports").stats().ready == 1
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("None while it is paused.")).to_be_visible()
    assert app.schedules.get("daily").paused
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("ol.mono li")).to_have_count(10)
    page.get_by_label("Type daily to confirm").fill("daily")
    page.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("There is no schedule.")).to_be_visible()
    assert app.schedules.list() == []


def test_each_fate_has_a_text():
    assert FATES.keys() == {*own.FATES}


def test_the_fate_of_the_latest_run(app, client):
    app.schedules.add("s", "1h", "q", "x")
    identity = app.schedules.run("s")
    with app.queue("q").consumer() as consumer:
        (message,) = consumer.claim()
        assert "It is being handled." in text_of(client.get("/schedules/s"))
        consumer.dead(message, "no")
    answer = client.get("/schedules/s")
    assert "It is a dead letter." in text_of(answer)
    assert f"/queues/q/dead/letter?id={identity.replace('@', '%40').replace(':', '%3A')}" in answer.text
    assert client.get(f"/queues/q/dead/letter?id={identity}").status_code == 200


def test_schedules_due_first_are_on_top_and_are_found_by_a_part_of_their_name(app, client):
    for name, when in (("b-late", "0 0 1 1 *"), ("a-paused", "30s"), ("c-soon", "1s")):
        app.schedules.add(name, when, f"queue-of-{name}")
    app.schedules.pause("a-paused")
    text = text_of(client.get("/schedules"))
    assert text.index("c-soon") < text.index("b-late") < text.index("a-paused")
    found = text_of(client.get("/schedules?q=queue-of-C"))
    assert "c-soon" in found
    assert "b-late" not in found
    assert "No schedule fits." in text_of(client.get("/schedules?q=none"))


def test_hostile_values_are_text(app, client):
    app.schedules.add("s", "1h", "q", ATTACK, headers={ATTACK: ATTACK}, key=ATTACK)
    app.schedules.run("s")
    for path in ("/schedules", "/schedules/s", f"/schedules?q={ATTACK}"):
        assert "<svg" not in client.get(path).text
    assert client.get(f"/schedules/{ATTACK}").status_code == 404


def test_removal_needs_the_name(app, client):
    app.schedules.add("s", "1h", "q")
    for form in ({}, {"confirm": "t"}):
        answer = client.post("/schedules/s/remove", data=form)
        assert answer.status_code == 400
        assert "the name of the schedule has to be typed" in answer.text
        assert f'value="{form.get("confirm", "")}"' in answer.text
    assert client.post("/schedules/none/pause").status_code == 404
    cross = client.post("/schedules/s/pause", headers={"Sec-Fetch-Site": "cross-site"})
    assert cross.status_code == 403
    assert [one.paused for one in app.schedules.list()] == [False]


def test_a_key_sees_and_changes_the_schedules_of_its_queues(app, client):
    app.schedules.add("mine", "1h", "orders")
    app.schedules.add("secret", "1h", "hidden")

    def holding(*scopes):
        identity, _, secret = app.store.run(keyring.create("k", scopes, ("orders",), None, 0.0)).partition(".")
        return {"auth": (identity, secret)}

    looking, operating, sending = holding("metrics"), holding("operate"), holding("operate", "enqueue")
    assert client.get("/schedules").status_code == 401
    for who in (looking, operating, sending):
        text = client.get("/schedules", **who).text
        assert "mine" in text
        assert "secret" not in text
        assert client.get("/schedules/secret", **who).status_code == 404
    for who in (looking, operating):
        assert "Run now" not in client.get("/schedules/mine", **who).text
        assert client.post("/schedules/mine/run", **who).status_code == 403
    assert client.post("/schedules/secret/run", **sending).status_code == 404
    assert client.post("/schedules/mine/pause", **operating).status_code == 303
    assert "Run now" in client.get("/schedules/mine", **sending).text
    assert client.post("/schedules/mine/run", **sending).status_code == 303
    assert app.queue("orders").stats().ready == 1


@pytest.mark.parametrize("verb", ["remove", "pause", "resume", "run"])
def test_a_schedule_that_moves_meanwhile_to_another_queue_is_left_alone(app, client, monkeypatch, verb):
    app.schedules.add("s", "1h", "orders")
    beginning(monkeypatch, ScheduleSteps, verb, lambda: app.schedules.add("s", "1h", "hidden"))
    assert client.post(f"/schedules/s/{verb}", data={"confirm": "s"}).status_code == 404
    found = app.schedules.get("s")
    assert (found.queue, found.paused, found.last_id) == ("hidden", False, "")
