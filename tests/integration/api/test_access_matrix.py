"""Every route of the service, as the application itself lists them, with every kind of credential."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from reliq.model.keys import API_KEYS
from reliq.ops import command
from reliq_api.access import keyring
from reliq_api.access.keyring import SCOPES
from reliq_api.app import create_app
from reliq_api.settings import Settings
from tests.integration.api.serving import application
from tests.integration.ui.dying import bury

# --- who may use a route ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """The rights that a route needs: all scopes, for the queue `orders`, for all queues, or for any queue."""

    scopes: tuple[str, ...] = ()
    of: Literal["everyone", "any", "queue", "reach", "all"] = "queue"
    request: Mapping[str, Any] = field(default_factory=dict)  #: one that is right but for the credential
    shown: bool = False  #: a page about a queue, which does not exist for those who may not see its numbers


def needs(*scopes, of="queue", **request):
    return Row(scopes, of, request)


def shows(*scopes, of="queue", **request):
    return Row(scopes, of, request, shown=True)


EVERYONE, ANY_KEY = needs(of="everyone"), needs(of="any")
QUEUE, PAGE = "/v1/queues/{queue}", "/queues/{name}"
FORM: Mapping[str, Any] = {"data": {"id": "x"}}
BINDING: Mapping[str, Any] = {"data": {"queue": "orders", "pattern": "a.b"}}

ROWS = {
    "GET /healthz": EVERYONE,
    "GET /readyz": EVERYONE,
    "GET /openapi.json": EVERYONE,
    "HEAD /openapi.json": EVERYONE,
    "GET /assets/{version}/{name}": EVERYONE,
    "GET /metrics": needs("metrics", of="all"),
    # the HTTP API
    f"POST {QUEUE}/messages": needs("enqueue", json={"body": 1}),
    f"POST {QUEUE}/messages/batch": needs("enqueue", json=[{"body": 1}]),
    "POST /v1/topics/{routing_key}/messages": needs("enqueue", of="reach", json={"body": 1}),
    f"POST {QUEUE}/leases": needs("consume", json={"limit": 1}),
    f"POST {QUEUE}/leases/{{lease}}/settle": needs("consume", json={"ack": ["x"]}),
    f"POST {QUEUE}/leases/{{lease}}/extend": needs("consume", json={"lease": 30}),
    f"POST {QUEUE}/leases/{{lease}}/progress": needs("consume", json={"id": "x", "progress": 1}),
    f"GET {QUEUE}/leases/{{lease}}/steps": needs("consume", params={"id": "x"}),
    f"POST {QUEUE}/leases/{{lease}}/step": needs("consume", json={"id": "x", "name": "s"}),
    f"POST {QUEUE}/leases/{{lease}}/sleep": needs("consume", json={"id": "x", "name": "s", "seconds": 1}),
    f"POST {QUEUE}/leases/{{lease}}/wait": needs("consume", json={"id": "x", "signal": "s"}),
    f"POST {QUEUE}/messages/{{id}}/signals": needs("enqueue", json={"name": "s"}),
    f"POST {QUEUE}/signals/{{token}}": needs(of="everyone", json={}),
    f"GET {QUEUE}/parked": needs("operate"),
    f"POST {QUEUE}/leases/{{lease}}/charge": needs("consume", json={"id": "x", "actual": 1}),
    f"POST {QUEUE}/leases/{{lease}}/emit": needs("consume", json={"id": "x", "chunk": 1}),
    f"GET {QUEUE}/messages/{{id}}/output": needs("operate"),
    f"PUT {QUEUE}/bindings/{{pattern}}": needs("topics"),
    f"DELETE {QUEUE}/bindings/{{pattern}}": needs("topics"),
    "GET /v1/queues": needs("metrics", of="any"),
    "GET /v1/topics": needs("metrics", of="any"),
    "GET /v1/topics/{routing_key}": needs("metrics", of="any"),
    "GET /v1/schedules": needs("metrics", of="any"),
    "POST /v1/flows": needs("enqueue", of="reach", json={"messages": [{"queue": "orders", "message": {"body": 1}}]}),
    "GET /v1/flows": needs("metrics", of="all"),
    "GET /v1/flows/{flow}": needs("metrics", of="all"),
    "DELETE /v1/flows/{flow}": needs("operate", of="all"),
    "GET /v1/batches": needs("metrics", of="all"),
    "GET /v1/batches/{batch}": needs("metrics", of="all"),
    "GET /v1/workers": needs("metrics", of="any"),
    "POST /v1/workers/{id}/{instruction}": needs("operate", of="any"),
    f"GET {QUEUE}": needs("metrics"),
    f"GET {QUEUE}/partitions": needs("metrics"),
    f"GET {QUEUE}/schedules/{{schedule}}": needs("metrics"),
    f"GET {QUEUE}/schedules/{{schedule}}/preview": needs("metrics"),
    f"PUT {QUEUE}/schedules/{{schedule}}": needs("operate", "enqueue", json={"when": "1h"}),
    f"POST {QUEUE}/schedules/{{schedule}}/run": needs("operate", "enqueue"),
    f"POST {QUEUE}/schedules/{{schedule}}/pause": needs("operate"),
    f"POST {QUEUE}/schedules/{{schedule}}/resume": needs("operate"),
    f"DELETE {QUEUE}/schedules/{{schedule}}": needs("operate"),
    f"GET {QUEUE}/messages/{{id}}": needs("operate"),
    f"DELETE {QUEUE}/messages/{{id}}": needs("operate"),
    f"GET {QUEUE}/messages/{{id}}/result": needs("operate"),
    f"GET {QUEUE}/search": needs("operate", params={"text": "x"}),
    f"POST {QUEUE}/cancel": needs("operate", json={"key": "k"}),
    f"PATCH {QUEUE}": needs("operate", json={"max_length": 7}),
    f"POST {QUEUE}/pause": needs("operate"),
    f"POST {QUEUE}/resume": needs("operate"),
    f"PUT {QUEUE}/breaker": needs("operate", json={"state": "open"}),
    f"POST {QUEUE}/purge": needs("operate", json={"confirm": "orders"}),
    f"GET {QUEUE}/delayed": needs("operate"),
    f"POST {QUEUE}/delayed/run": needs("operate", json={"all": True}),
    f"GET {QUEUE}/dead": needs("operate"),
    f"GET {QUEUE}/dead/{{id}}": needs("operate"),
    f"POST {QUEUE}/dead/redrive": needs("operate", json={}),
    f"POST {QUEUE}/dead/purge": needs("operate", json={"all": True}),
    # the dashboard
    "GET /": ANY_KEY,
    "GET /find": ANY_KEY,
    "GET /jobs": ANY_KEY,
    "GET /topics": ANY_KEY,
    "GET /schedules": ANY_KEY,
    "GET /workers": ANY_KEY,
    "GET /workers/{worker}": ANY_KEY,
    "POST /workers/{worker}/{instruction}": ANY_KEY,
    "GET /batches": needs("metrics", of="all"),
    "GET /flows": needs("metrics", of="all"),
    "GET /flows/{flow}": needs("metrics", of="all"),
    "POST /jobs/abort": shows("operate", data={"queue": "orders", "job": "j"}),
    "POST /topics/bind": needs("topics", **BINDING),
    "POST /topics/unbind": needs("topics", **BINDING),
    "GET /schedules/{schedule}": shows("metrics"),
    "POST /schedules/{schedule}/pause": shows("operate"),
    "POST /schedules/{schedule}/resume": shows("operate"),
    "POST /schedules/{schedule}/run": shows("operate", "enqueue"),
    "POST /schedules/{schedule}/remove": shows("operate", data={"confirm": "other"}),
    f"GET {PAGE}": shows("metrics"),
    f"GET {PAGE}/message": shows("operate", params={"id": "x"}),
    f"GET {PAGE}/search": shows("operate", params={"text": "x"}),
    f"GET {PAGE}/message/cancel": shows("operate", params={"id": "x"}),
    f"POST {PAGE}/message/cancel": shows("operate", **FORM),
    f"GET {PAGE}/send": shows("operate", "enqueue"),
    f"POST {PAGE}/send": shows("operate", "enqueue", data={"body": "x"}),
    f"GET {PAGE}/policy": shows("operate"),
    f"POST {PAGE}/policy": shows("operate", data={"max_length": "7"}),
    f"POST {PAGE}/pause": shows("operate"),
    f"POST {PAGE}/resume": shows("operate"),
    f"POST {PAGE}/breaker/open": shows("operate"),
    f"POST {PAGE}/breaker/close": shows("operate"),
    f"GET {PAGE}/purge": shows("operate"),
    f"POST {PAGE}/purge": shows("operate", data={"confirm": "orders"}),
    f"GET {PAGE}/delayed": shows("operate"),
    f"POST {PAGE}/delayed/run": shows("operate", data={"all": "1"}),
    f"POST {PAGE}/delayed/cancel": shows("operate", **FORM),
    f"GET {PAGE}/parked": shows("operate"),
    f"GET {PAGE}/output": shows("operate", params={"id": "x"}),
    f"POST {PAGE}/parked/signal": shows("operate", "enqueue", **FORM),
    f"GET {PAGE}/dead": shows("operate"),
    f"GET {PAGE}/dead/letter": shows("operate", params={"id": "x"}),
    f"GET {PAGE}/dead/body": shows("operate", params={"id": "x"}),
    f"GET {PAGE}/dead/edit": shows("operate", "enqueue", params={"id": "x"}),
    f"POST {PAGE}/dead/edit": shows("operate", "enqueue", **FORM),
    f"GET {PAGE}/dead/redrive": shows("operate"),
    f"POST {PAGE}/dead/redrive": shows("operate", data={"dry_run": "1", "id": "x"}),
    f"GET {PAGE}/dead/redrives/{{identity}}": shows("operate"),
    f"POST {PAGE}/dead/redrives/{{identity}}/stop": shows("operate"),
    f"GET {PAGE}/dead/purge": shows("operate"),
    f"POST {PAGE}/dead/purge": shows("operate", data={"confirm": "orders"}),
}

IN_PATHS = {
    "queue": "orders", "name": "orders", "schedule": "daily", "id": "x", "lease": "h0123456789abcdef0123",
    "pattern": "a.b", "routing_key": "new.order", "version": "v", "identity": "x",
    "batch": "3q2_7wAAq83v", "flow": "9f86d081884c7d65",
    "token": "x", "worker": "h0123456789abcdef0123", "instruction": "pause",
}  # fmt: skip


def routes(app: FastAPI) -> list[str]:
    """Return method and path of every route."""
    found = [(method, one.path) for one in iter_route_contexts(app.routes) for method in one.methods or () if one.path]
    return [f"{method} {distinct(path)}" for method, path in found]


def distinct(path: str) -> str:
    """Return the path with a name of its own for each thing that has an example in IN_PATHS."""
    path = path.replace("/schedules/{name}", "/schedules/{schedule}").replace("/batches/{id}", "/batches/{batch}")
    return path.replace("/flows/{id}", "/flows/{flow}")


def test_every_route_has_its_row_and_every_row_its_route():
    assert sorted(routes(create_app())) == sorted(ROWS)


def test_the_rows_of_the_api_are_what_its_document_says():
    document = create_app().openapi()
    said = {
        f"{method.upper()} {distinct(path)}": (
            (operation["x-scope"], *operation.get("x-other-scopes", ())) if "x-scope" in operation else ()
        )
        for path, calls in document["paths"].items()
        for method, operation in calls.items()
        if "x-scope" in operation or "x-keyless" in operation
    }  # fmt: skip
    assert said == {call: row.scopes for call, row in ROWS.items() if "/v1/" in call or call == "GET /metrics"}


# --- who asks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holder:
    """Who sends a request, with which rights; `valid`: whether it is a key that exists."""

    name: str
    headers: Mapping[str, str]
    scopes: tuple[str, ...] = ()
    queues: str = ""
    valid: bool = True
    params: Mapping[str, str] = field(default_factory=dict)

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or (scope == "metrics" and "operate" in self.scopes)

    @property
    def covers_orders(self) -> bool:
        return self.queues in ("orders", "*")


def holders(app) -> list[Holder]:
    """Make a key with each scope, with all but each, and with all, for three patterns; and what is no key."""

    def made(scopes, queues, name="k"):
        return app.store.run(keyring.create(name, scopes, (queues,), None, 0.0))

    sets = [*((one,) for one in SCOPES), *itertools.combinations(SCOPES, len(SCOPES) - 1), SCOPES]
    keys = [
        Holder(f"{'+'.join(scopes)} for {queues}", _bearer(made(scopes, queues)), scopes, queues)
        for scopes in sets
        for queues in ("orders", "bills", "*")
    ]
    right, revoked, expired = (made(SCOPES, "*") for _ in range(3))
    app.store.run(keyring.revoke(revoked.partition(".")[0]))
    identity = expired.partition(".")[0]
    record = msgspec.structs.replace(app.store.run(keyring.read_all())[identity], expires_at=1)
    app.store.call(command("HSET", API_KEYS, identity, msgspec.json.encode(record)))
    wrong = {
        "no key": {},
        "an unknown key": _bearer("0123456789ab.secret"),
        "a wrong secret": _bearer(right[:-1]),
        "a revoked key": _bearer(revoked),
        "an expired key": _bearer(expired),
        "another scheme": {"authorization": f"Digest {right}"},
        "two keys in one": _bearer(f"{right} {right}"),
        "a header of other services": {"x-api-key": right},
    }
    strangers = [Holder(name, headers, valid=False) for name, headers in wrong.items()]
    return [*keys, *strangers, Holder("a key in the query", {}, valid=False, params={"token": right})]


def _bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def refusal(row: Row, who: Holder) -> int:
    """Return the status with which the request must be refused; 0 = it must not."""
    if row.of == "everyone":
        return 0
    if not who.valid:
        return 401
    sees = who.allows("metrics")
    if row.of == "queue" and not (who.covers_orders and (sees or not row.shown)):
        return 404
    reached = {"all": who.queues == "*", "reach": who.covers_orders}.get(row.of, True)
    return 0 if reached and all(who.allows(scope) for scope in row.scopes) else 403


def refused(answer: httpx.Response) -> int:
    """Return the status of an answer that refuses the sender; 0 for any other answer."""
    if answer.status_code in (401, 403):
        return answer.status_code
    hidden = ("queue_not_found", "There is no queue of this name", "There is no schedule of this name")
    return 404 if answer.status_code == 404 and any(text in answer.text for text in hidden) else 0


# --- all of them -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def service(url: str, **settings: Any) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """The application in this process, without a server, and a client for it."""
    with application(Settings(url=url, **settings)) as app:
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            yield app, client


async def asked(client: httpx.AsyncClient, call: str, row: Row, who: Holder) -> httpx.Response:
    method, path = call.split(" ")
    request = {**row.request, "params": {**row.request.get("params", {}), **who.params}}
    return await client.request(method, path.format(**IN_PATHS), headers=who.headers, **request)


async def fault(client: httpx.AsyncClient, call: str, row: Row, who: Holder) -> list[str]:
    """Send the request; return what is wrong with its answer."""
    wanted, answer = refusal(row, who), await asked(client, call, row, who)
    if refused(answer) == wanted and answer.status_code < 500:
        return []
    return [f"{call} with {who.name}: {answer.status_code} and not {wanted or 'allowed'}"]


def prepare(app) -> None:
    """Make the queue and the schedule that the requests are about, as an earlier request may have removed them."""
    app.queue("orders").configure(max_length=None)
    app.subscribe("orders", "new.order")
    app.schedules.add("daily", "1h", "orders")


def changes(app) -> int:
    """Return how many changes of keys the Redis has counted since its start."""
    found = re.search(rb"rdb_changes_since_last_save:(\d+)", app.store.call(command("INFO", "persistence")))
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("part", ["the HTTP API", "the dashboard"])
def test_every_route_admits_exactly_whom_it_should_and_a_refusal_changes_nothing(url, app, part, step):
    """With a step of 3 each holder asks every third route, and each route is asked by every third holder."""
    bury(app, "orders", [b"dead"])
    everyone = holders(app)
    calls = {call: row for call, row in ROWS.items() if ("/v1/" in call) == (part == "the HTTP API")}
    faults: list[str] = []

    async def run() -> None:
        nonlocal faults
        async with service(url) as (_, client):
            for place, (call, row) in enumerate(calls.items()):
                some = everyone[place % step :: step]
                prepare(app)
                before = changes(app)
                for who in (who for who in some if refusal(row, who)):
                    faults += await fault(client, call, row, who)
                faults += [f"{call}: a refused request changed something"] if changes(app) != before else []
                for who in (who for who in some if not refusal(row, who)):
                    faults += await fault(client, call, row, who)

    asyncio.run(run())
    assert faults == []


NOBODY = Holder("no key", {}, valid=False)


@pytest.mark.parametrize("no_auth", [False, True])
@pytest.mark.parametrize("existed", [False, True])
def test_without_keys_a_route_is_served_only_with_no_auth_and_if_no_key_has_existed(url, app, no_auth, existed):
    if existed:
        key = app.store.run(keyring.create("k", SCOPES, ("*",), None, 0.0))
        app.store.run(keyring.revoke(key.partition(".")[0]))
    bury(app, "orders", [b"dead"])
    faults = []

    async def run() -> None:
        async with service(url, no_auth=no_auth) as (_, client):
            for call, row in ROWS.items():
                prepare(app)
                wanted = 0 if row.of == "everyone" or (no_auth and not existed) else 401
                answer = await asked(client, call, row, NOBODY)
                if refused(answer) != wanted or answer.status_code >= 500:
                    faults.append(f"{call}: {answer.status_code} and not {wanted or 'allowed'}")

    asyncio.run(run())
    assert faults == []


def test_no_answer_with_data_may_be_stored_by_a_cache(url, app):
    prepare(app)
    (everything,) = (who for who in holders(app) if who.scopes == SCOPES and who.queues == "*")
    storable = []

    async def run() -> None:
        async with service(url) as (_, client):
            for call, row in ROWS.items():
                for who in (everything, NOBODY):
                    answer = await asked(client, call, row, who)
                    if answer.headers.get("cache-control") != "no-store":
                        storable.append(f"{call} with {who.name}: {answer.headers.get('cache-control')}")

    asyncio.run(run())
    assert storable == []
