"""Schedules over HTTP."""

import pytest

from reliq.features.schedules.steps import ScheduleSteps
from reliq_api.access import keyring
from tests.integration.api.serving import problem, serving
from tests.support.hooked import beginning, hooked

DAILY = "/v1/queues/q/schedules/daily"


@pytest.fixture
def service(url):
    with serving(url) as client:
        yield client


def put(service, path=DAILY, **definition):
    return service.put(path, json={"when": "0 7 * * *", **definition})


def test_a_schedule_is_added_shown_changed_and_removed(service, app):
    options = {"tz": "Europe/Berlin", "body": {"a": 1}, "jitter": "30s", "catch_up": "all", "catch_up_limit": 5.0}
    added = put(service, **options)
    assert added.status_code == 200
    shown = added.json()
    assert (shown["name"], shown["queue"], shown["when"], shown["tz"]) == ("daily", "q", "0 7 * * *", "Europe/Berlin")
    assert (shown["jitter"], shown["catch_up"], shown["catch_up_limit"]) == (30.0, "all", 5)
    assert len(shown["next_ticks"]) == 10
    assert shown["next_ticks"][0] == shown["next_tick"]
    assert (shown["fate"], shown["last_id"]) == ("", "")
    assert "body" not in shown
    assert service.get(DAILY).json() == shown
    assert (
        put(service, tz="Europe/Berlin", body={"a": 1}, jitter="30s", catch_up="all", catch_up_limit=5).json() == shown
    )
    assert [one["name"] for one in service.get("/v1/schedules").json()["schedules"]] == ["daily"]
    assert len(service.get(DAILY + "/preview?count=3").json()["ticks"]) == 3
    assert service.delete(DAILY).json() == {"removed": True}
    assert problem(service.delete(DAILY)) == (404, "schedule_not_found")
    assert service.get("/v1/schedules").json() == {"schedules": []}


def test_a_schedule_is_run_paused_and_resumed(service, app):
    put(service, body="x")
    identity = service.post(DAILY + "/run").json()["id"]
    shown = service.get(DAILY).json()
    assert (shown["last_id"], shown["fate"]) == (identity, "ready")
    assert service.post(DAILY + "/pause").json()["paused"] is True
    assert service.get(DAILY + "/preview").json() == {"ticks": []}
    assert service.post(DAILY + "/resume").json()["paused"] is False
    app.queue("q").configure(max_length=1)
    assert problem(service.post(DAILY + "/run")) == (429, "queue_full")


def test_a_message_that_waits_for_a_signal_is_parked(service):
    put(service, body="x")
    identity = service.post(DAILY + "/run").json()["id"]
    lease = service.post("/v1/queues/q/leases", json={"limit": 1}).json()["lease"]
    waits = service.post(f"/v1/queues/q/leases/{lease}/wait", json={"id": identity, "signal": "go"})
    assert waits.status_code < 300, waits.text
    assert service.get(DAILY).json()["fate"] == "parked"


@pytest.mark.parametrize(
    ("definition", "body", "content_type"),
    [
        ({"body": {"a": 1}}, b'{"a":1}', None),
        ({"body": "text"}, b"text", None),
        ({"body": "[1]"}, b"[1]", "text/plain; charset=utf-8"),
        ({"body": 1}, b"1", "application/json"),
        ({"body": None}, b"null", "application/json"),
        ({"body_base64": "/wA="}, b"\xff\x00", None),
        ({}, b"", None),
    ],
)
def test_bodies_are_those_of_an_enqueue(service, app, definition, body, content_type):
    assert put(service, **definition, headers={"h": "v"}).status_code == 200
    found = app.schedules.get("daily").definition
    assert (found.body, found.headers.get("content-type"), found.headers["h"]) == (body, content_type, "v")


@pytest.mark.parametrize(
    ("definition", "code", "says"),
    [
        ({"when": "0 0 31 2 *"}, "invalid_request", "'0 0 31 2 *' never fires"),
        ({"tz": "Mars/Olympus"}, "invalid_request", "'Mars/Olympus'"),
        ({"when": "30 parsecs"}, "invalid_request", "'30 parsecs'"),
        ({"when": 0.5}, "invalid_request", "0.5"),
        ({"start": "2027-01-02", "end": "2027-01-01"}, "invalid_request", "before its start"),
        ({"start": "tomorrow"}, "invalid_request", "'tomorrow'"),
        ({"body": 1, "body_base64": "eA=="}, "invalid_message", "at most one"),
        ({"headers": {"reliq-dead-from": "q"}}, "invalid_message", "set by reliq alone"),
        ({"unknown": 1}, "invalid_request", ""),
        ({"catch_up_limit": 0}, "invalid_request", ""),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(service, app, definition, code, says):
    answer = put(service, **definition)
    assert problem(answer) == (422, code)
    assert says in answer.text
    assert app.schedules.list() == []


def test_bad_names_and_schedules_of_other_queues(service, app):
    app.schedules.add("daily", "1h", "other")
    assert problem(service.get(DAILY)) == (404, "schedule_not_found")
    for call in ("pause", "resume", "run"):
        assert problem(service.post(f"{DAILY}/{call}")) == (404, "schedule_not_found")
    assert problem(service.delete(DAILY)) == (404, "schedule_not_found")
    assert put(service, "/v1/queues/q/schedules/a b").status_code == 422
    assert put(service, "/v1/queues/a}b/schedules/s").status_code in (400, 422)
    assert [one.queue for one in app.schedules.list()] == ["other"]


def test_a_key_reaches_its_own_queues(service, app):
    app.schedules.add("secret", "1h", "hidden")
    app.schedules.add("mine", "1h", "q")

    def holding(*scopes):
        key = app.store.run(keyring.create("k", scopes, ("q",), None, 0.0))
        return {"authorization": f"Bearer {key}"}

    both, reader, operator = holding("operate", "enqueue"), holding("metrics"), holding("operate")
    assert [one["name"] for one in service.get("/v1/schedules", headers=both).json()["schedules"]] == ["mine"]
    assert problem(service.get("/v1/queues/hidden/schedules/secret", headers=both)) == (404, "queue_not_found")
    moved = service.put("/v1/queues/q/schedules/secret", json={"when": "1h"}, headers=both)
    assert problem(moved) == (403, "forbidden")
    assert app.schedules.get("secret").queue == "hidden"
    assert service.get("/v1/queues/q/schedules/mine", headers=reader).status_code == 200
    for method, path in (("PUT", ""), ("DELETE", ""), ("POST", "/run"), ("POST", "/pause")):
        answer = service.request(method, f"/v1/queues/q/schedules/mine{path}", json={"when": "1h"}, headers=reader)
        assert problem(answer) == (403, "forbidden")
    for method, path in (("PUT", ""), ("POST", "/run")):  # both choose what enters the queue, and when
        answer = service.request(method, f"/v1/queues/q/schedules/mine{path}", json={"when": "2h"}, headers=operator)
        assert problem(answer) == (403, "forbidden")
    assert app.queue("q").stats().ready == 0
    assert service.post("/v1/queues/q/schedules/mine/pause", headers=operator).status_code == 200
    assert service.post("/v1/queues/q/schedules/mine/run", headers=both).status_code == 200


def test_a_schedule_that_appears_meanwhile_in_a_queue_of_others_is_not_taken_away(service, app, monkeypatch):
    """Between any two requests of an add, another one adds it to a queue to which the key has no right."""
    key = app.store.run(keyring.create("k", ("operate", "enqueue"), ("q",), None, 0.0))
    put = ScheduleSteps.put
    for after in range(1, 20):
        name = f"s{after}"
        interrupted: list[int] = []

        def beside(steps, definitions, name=name, after=after, interrupted=interrupted):
            def add_unless_it_is_there():
                interrupted.append(after)
                if not app.schedules.list("q"):
                    app.schedules.add(name, "1h", "hidden")

            monkeypatch.setattr(ScheduleSteps, "put", put)
            return hooked(put(steps, definitions), after, add_unless_it_is_there)

        monkeypatch.setattr(ScheduleSteps, "put", beside)
        answer = service.put(
            f"/v1/queues/q/schedules/{name}", json={"when": "1h"}, headers={"authorization": f"Bearer {key}"}
        )
        owner = app.schedules.get(name).queue
        assert (answer.status_code, owner) in ((200, "q"), (403, "hidden"))
        assert interrupted or answer.status_code == 200
        app.schedules.remove(name)


@pytest.mark.parametrize(
    ("method", "verb"), [("DELETE", "remove"), ("POST", "pause"), ("POST", "resume"), ("POST", "run")]
)
def test_a_schedule_that_moves_meanwhile_to_another_queue_is_left_alone(service, app, monkeypatch, method, verb):
    app.schedules.add("daily", "1h", "q")
    beginning(monkeypatch, ScheduleSteps, verb, lambda: app.schedules.add("daily", "1h", "hidden"))
    answer = service.delete(DAILY) if verb == "remove" else service.post(f"{DAILY}/{verb}")
    assert problem(answer) == (404, "schedule_not_found")
    found = app.schedules.get("daily")
    assert (found.queue, found.paused, found.last_id) == ("hidden", False, "")
    assert app.queue("hidden").stats().ready == 0
