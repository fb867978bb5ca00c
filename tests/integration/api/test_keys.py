"""API keys: who may do what, and what a key that may not gets to know."""

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

from reliq import ops
from reliq.errors import InvalidSetting
from reliq.model.keys import API_KEY_EXISTED, API_KEYS
from reliq.ops import command
from reliq.protocol.clock import this_machines_ms
from reliq_api.access import keyring
from reliq_api.access.keyring import ApiKey, judged
from tests.integration.api.serving import own_process, problem, serving, terminated
from tests.support.commands import run
from tests.support.workers import eventually


@pytest.fixture
def make(app):
    def key(*scopes, queues=("orders*",), expires=None, rate=0.0):
        return app.store.run(keyring.create("test", scopes, queues, expires, rate))

    return key


def bearer(key):
    return {"authorization": f"Bearer {key}"}


@pytest.fixture
def guarded(url, make):
    """A service with a key, so that requests need one."""
    make("operate", queues=("nothing",))
    with serving(url) as service:
        yield service


CALLS: dict[str, list[tuple[str, str, Any]]] = {
    "enqueue": [("POST", "messages", {"body": 1}), ("POST", "messages/batch", [{"body": 1}])],
    "consume": [
        ("POST", "leases", {}),
        ("POST", "leases/h0123456789abcdef0123/settle", {"ack": ["x"]}),
        ("POST", "leases/h0123456789abcdef0123/extend", {}),
        ("POST", "leases/h0123456789abcdef0123/progress", {"id": "x", "progress": 1}),
    ],
    "metrics": [("GET", "", None)],
    "operate": [
        ("PATCH", "", {}),
        ("POST", "pause", None),
        ("POST", "resume", None),
        ("POST", "purge", {"confirm": "orders"}),
        ("GET", "dead", None),
        ("GET", "dead/x", None),
        ("POST", "dead/redrive", {}),
        ("POST", "dead/purge", {"all": True}),
        ("GET", "messages/x", None),
        ("GET", "messages/x/result", None),
        ("DELETE", "messages/x", None),
        ("POST", "cancel", {"key": "k"}),
    ],
    "topics": [("PUT", "bindings/a.b", None), ("DELETE", "bindings/a.b", None)],
}
EVERY = [(scope, *call) for scope, calls in CALLS.items() for call in calls]


@pytest.mark.parametrize(("scope", "method", "path", "body"), EVERY)
def test_a_call_needs_its_scope(guarded, make, app, scope, method, path, body):
    app.queue("orders").pause()
    app.queue("orders").resume()
    address = f"/v1/queues/orders/{path}".rstrip("/")
    others = [other for other in CALLS if other != scope and (scope, other) != ("metrics", "operate")]
    keys = [make(*others), make(scope), make(*CALLS, queues=("other",))]
    nobody = guarded.request(method, address, json=body)
    denied, allowed, foreign = (guarded.request(method, address, json=body, headers=bearer(key)) for key in keys)
    assert problem(denied) == (403, "forbidden")
    assert allowed.status_code in (200, 201) or problem(allowed)[1] in (
        "lease_lost",
        "dead_letter_not_found",
        "message_not_found",
        "no_result",
    )
    assert problem(foreign) == (404, "queue_not_found")
    assert problem(nobody) == (401, "unauthorized")


def test_metrics_need_a_key_for_all_queues(guarded, make):
    some, every = make("metrics"), make("metrics", queues=("*",))
    assert problem(guarded.get("/metrics")) == (401, "unauthorized")
    assert problem(guarded.get("/metrics", headers=bearer(some))) == (403, "forbidden")
    assert guarded.get("/metrics", headers=bearer(every)).status_code == 200


def test_a_foreign_queue_looks_like_one_that_is_not_there(guarded, make, app):
    app.queue("secret").send("x")
    key = bearer(make("operate"))
    there, not_there = (guarded.get(f"/v1/queues/{name}", headers=key) for name in ("secret", "nothing"))
    assert there.text.replace("secret", "nothing") == not_there.text
    app.queue("orders-1").send("x")
    listed = guarded.get("/v1/queues", headers=key).json()["queues"]
    assert [one["queue"] for one in listed] == ["orders-1"]


@pytest.mark.parametrize(
    "header",
    ["Bearer", "Bearer x", "Bearer .", "Bearer a.b", "Basic !!!", "Basic eDp5", "Digest a.b", "bearer \xff.\xff", ""],
)
def test_a_wrong_key_is_refused(guarded, header):
    answer = guarded.get("/v1/queues", headers={"authorization": header.encode("latin-1")})
    assert problem(answer) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_the_right_id_with_a_wrong_secret_is_refused(guarded, make):
    key = make("metrics")
    assert guarded.get("/v1/queues", headers=bearer(key)).status_code == 200
    for wrong in (key[:-1], key + "x", key.partition(".")[0] + ".", key.partition(".")[0]):
        assert problem(guarded.get("/v1/queues", headers=bearer(wrong))) == (401, "unauthorized")


def test_a_browser_gives_its_key_as_user_and_password(guarded, make):
    identity, _, secret = make("metrics").partition(".")
    assert guarded.get("/v1/queues", auth=(identity, secret)).status_code == 200


def test_two_keys_live_while_one_replaces_the_other(guarded, make, app):
    old, new = make("metrics"), make("metrics")
    assert [guarded.get("/v1/queues", headers=bearer(key)).status_code for key in (old, new)] == [200, 200]
    assert app.store.run(keyring.revoke(old.partition(".")[0]))
    eventually(lambda: guarded.get("/v1/queues", headers=bearer(old)).status_code == 401)
    assert guarded.get("/v1/queues", headers=bearer(new)).status_code == 200


def test_a_key_expires():
    key = ApiKey(name="k", sha256="x", scopes=("enqueue",), queues=("*",), created_at=0, expires_at=1000)
    assert (key.expired(999), key.expired(1000)) == (False, True)
    never = ApiKey(name="k", sha256="x", scopes=("enqueue",), queues=("*",), created_at=0)
    assert not never.expired(10**15)


def test_an_expired_key_is_nobodys(app, make):
    text = make("enqueue", expires=60)
    keys = app.store.run(keyring.read_all())
    now = this_machines_ms()
    assert judged(keys, text, now) is not None
    over = {identity: msgspec.structs.replace(key, expires_at=key.created_at) for identity, key in keys.items()}
    assert judged(over, text, now) is None


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_key_expires_by_the_clock_of_redis(url, app, make, monkeypatch, hours):
    """The clock of the machine with the service is hours behind, or ahead."""
    valid, over = make("metrics", expires=3600), make("metrics")
    identity = over.partition(".")[0]
    record = app.store.run(keyring.read_all())[identity]
    ended = msgspec.structs.replace(record, expires_at=record.created_at)
    app.store.call(command("HSET", API_KEYS, identity, msgspec.json.encode(ended)))
    right, right_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: right() + hours * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + hours * 3600 * 10**9)
    with serving(url) as service:
        answers = [service.get("/v1/queues", headers=bearer(key)).status_code for key in (valid, over)]
    assert answers == [200, 401]


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders", ["orders"], ["orders2", "xorders", "order"]),
        ("orders*", ["orders", "orders-eu"], ["xorders"]),
        ("*", ["a", "b.c"], []),
        ("*@mail", ["x@mail"], ["x@mail2"]),
        ("a.b", ["a.b"], ["axb"]),
        ("a*a", ["aa", "aba"], ["a", "ab"]),
        ("a*b*c", ["abc", "axbxc", "abcbc"], ["ac", "acb", "abcb"]),
        ("**", ["", "a"], []),
        ("*a*a*", ["aa", "xaxax"], ["a", "bab"]),
    ],
)
def test_which_queues_a_pattern_means(pattern, matching, others):
    key = ApiKey(name="k", sha256="", scopes=("enqueue",), queues=(pattern,), created_at=0)
    assert [name for name in [*matching, *others] if key.covers(name)] == matching


def test_a_pattern_with_many_stars_is_matched_without_backtracking():
    """With a search that backtracks, more than 10**17 ways are tried before the answer is no."""
    key = ApiKey(name="k", sha256="", scopes=("enqueue",), queues=("*a" * 60 + "*b",), created_at=0)
    assert not key.covers("a" * 128)
    assert key.covers("a" * 127 + "b")


def test_no_secret_lies_in_redis(app, make):
    secret = make("enqueue").partition(".")[2]
    for key in app.store.call(command("KEYS", "*")):
        assert secret.encode() not in app.store.call(command("DUMP", key))


@pytest.mark.parametrize(
    ("name", "scopes", "queues", "expires", "rate"),
    [
        ("", ("enqueue",), ("*",), None, 0),
        ("k\n", ("enqueue",), ("*",), None, 0),
        ("k", (), ("*",), None, 0),
        ("k", ("admin",), ("*",), None, 0),
        ("k", ("enqueue",), (), None, 0),
        ("k", ("enqueue",), ("a{b",), None, 0),
        ("k", ("enqueue",), ("*",), "0s", 0),
        ("k", ("enqueue",), ("*",), None, -1),
        ("k", ("enqueue",), ("*",), None, float("nan")),
    ],
)
def test_keys_that_cannot_be_made(app, name, scopes, queues, expires, rate):
    with pytest.raises(InvalidSetting):
        app.store.run(keyring.create(name, scopes, queues, expires, rate))
    assert app.store.run(keyring.read_all()) == {}


def test_a_queue_pattern_that_is_too_long_is_not_repeated_and_the_limit_is_named(app):
    app.store.run(keyring.create("k", ("enqueue",), ("a" * 128,), None, 0))
    with pytest.raises(InvalidSetting, match="a queue pattern has 129 characters: at most 128 are allowed") as refused:
        app.store.run(keyring.create("k", ("enqueue",), ("a" * 129,), None, 0))
    assert "aaa" not in str(refused.value)


@pytest.mark.parametrize(("rate", "allows"), [(1, "1 request a second"), (0.001, "0.001 requests a second")])
def test_a_refusal_by_the_rate_says_what_the_key_allows(guarded, make, rate, allows):
    key = bearer(make("enqueue", rate=rate))

    def refused():
        answer = guarded.post("/v1/queues/orders/messages", json={"body": 1}, headers=key)
        return answer if answer.status_code == 429 else None

    assert eventually(refused).json()["detail"] == f"the key allows {allows}"


def test_a_key_has_a_rate_that_acks_are_free_of(guarded, make, app):
    key = bearer(make("enqueue", "consume", rate=0.001))
    answers = [guarded.post("/v1/queues/orders/messages", json={"body": 1}, headers=key) for _ in range(3)]
    assert answers[0].status_code == 201
    assert problem(answers[1]) == problem(answers[2]) == (429, "rate_limited")
    assert 900 < int(answers[2].headers["retry-after"]) <= 1001
    settle = "/v1/queues/orders/leases/h0123456789abcdef0123/settle"
    answers = [guarded.post(settle, json={"ack": ["x"]}, headers=key) for _ in range(20)]
    assert {answer.status_code for answer in answers} == {200}


@pytest.mark.parametrize("id", ["settle", "extend"])
def test_a_message_named_like_an_unlimited_call_is_limited(guarded, make, app, id):
    app.queue("orders").send("x", id=id, delay=60)
    key = bearer(make("operate", rate=0.001))
    answers = [guarded.get(f"/v1/queues/orders/messages/{id}", headers=key) for _ in range(2)]
    assert answers[0].status_code == 200
    assert problem(answers[1]) == (429, "rate_limited")


@pytest.mark.parametrize("name", ["settle", "extend"])
def test_a_page_of_a_queue_named_like_an_unlimited_call_is_limited(guarded, make, app, name):
    app.queue(name).send("x")
    identity, _, secret = make("operate", queues=("*",), rate=0.001).partition(".")
    answers = [guarded.get(f"/queues/{name}", auth=(identity, secret)) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]


def test_a_rate_holds_over_all_processes(guarded, make, url, app):
    """Both are asked as fast as they answer: they let through what flows in meanwhile, and a second's worth."""
    rate = 20
    key = bearer(make("metrics", rate=rate))
    with serving(url) as other, ThreadPoolExecutor() as pool:
        started = time.monotonic()
        asked = pool.map(
            lambda one: [one.get("/v1/queues", headers=key).status_code for _ in range(150)], [guarded, other]
        )
        codes = [code for one in asked for code in one]
        seconds = time.monotonic() - started
    assert set(codes) == {200, 429}
    assert rate / 2 < codes.count(200) <= rate * (1 + seconds) + 1
    assert app.store.call(command("PTTL", f"reliq:api:allowance:{key['authorization'][7:19]}")) > 0


def test_what_is_allowed_flows_in_again(app):
    def allow(rate, wanted):
        return app.store.call(ops.allow("k", rate, wanted))

    assert allow(0.001, 5) == (1, 0)
    taken, wait = allow(0.001, 1)
    assert taken == 0
    assert 900_000 < wait <= 1_000_000
    assert app.store.call(ops.allow("other", 1e6, 100_000)) == (100_000, 0)
    eventually(lambda: app.store.call(ops.allow("slow", 20, 20))[0] == 20)
    eventually(lambda: app.store.call(ops.allow("slow", 20, 20))[0] == 1)


# --- without keys ----------------------------------------------------------------------------------------------------


@pytest.fixture
def plain(url):
    """A service that was started without --no-auth, on a Redis without a key."""
    with serving(url, no_auth=False) as service:
        yield service


@pytest.mark.parametrize("path", ["/v1/queues", "/metrics"])
def test_without_keys_every_request_is_told_what_to_do(plain, path):
    answer = plain.get(path)
    assert problem(answer) == (401, "unauthorized")
    assert "`reliq key create" in answer.json()["detail"]
    assert "--no-auth" in answer.json()["detail"]
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_without_keys_a_page_says_what_to_do_and_asks_for_no_password(plain):
    """A browser shows no page before its user has given up on a prompt for Basic credentials."""
    answer = plain.get("/")
    assert answer.status_code == 401
    assert "reliq key create" in answer.text
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_the_first_key_opens_a_service_that_runs(plain, make):
    key = bearer(make("metrics"))
    eventually(lambda: plain.get("/v1/queues", headers=key).status_code == 200)


def test_what_a_default_nginx_passes_on_is_refused_without_keys(plain):
    """`proxy_pass http://127.0.0.1:8080` sends this Host, and nothing about the client."""
    answer = plain.get("/v1/queues", headers={"host": "127.0.0.1:8080", "connection": "close"})
    assert problem(answer) == (401, "unauthorized")


def revoked(app, key):
    assert app.store.run(keyring.revoke(key.partition(".")[0]))


def lost(app, key):
    app.store.call(command("DEL", API_KEYS))


def emptied(app, key):
    app.store.call(command("FLUSHALL"))


@pytest.mark.parametrize("end", [revoked, lost, emptied])
def test_the_end_of_the_last_key_opens_no_service_that_runs(url, app, make, end):
    with serving(url) as service:
        assert service.get("/v1/queues").status_code == 200
        key = make("metrics")
        eventually(lambda: service.get("/v1/queues").status_code == 401)
        assert service.get("/v1/queues", headers=bearer(key)).status_code == 200
        end(app, key)
        eventually(lambda: service.get("/v1/queues", headers=bearer(key)).status_code == 401)
        assert problem(service.get("/v1/queues")) == (401, "unauthorized")
        assert service.get("/").status_code == 401


@pytest.mark.parametrize("end", [revoked, lost])
def test_once_a_key_has_existed_no_auth_has_no_effect(url, app, make, end):
    end(app, make("metrics"))
    with serving(url) as service:
        assert problem(service.get("/v1/queues")) == (401, "unauthorized")
        assert service.get("/healthz").status_code == 200


def test_a_key_of_an_earlier_version_counts_when_it_is_revoked(url, app, make):
    key = make("metrics")
    app.store.call(command("DEL", API_KEY_EXISTED))
    revoked(app, key)
    with serving(url) as service:
        assert problem(service.get("/v1/queues")) == (401, "unauthorized")


def test_a_poll_without_a_key_ends_when_there_is_one(url, app, make):
    orders = app.queue("orders")
    app.store.call(ops.announce("orders"))
    with serving(url) as service, ThreadPoolExecutor(1) as pool:
        poll = pool.submit(service.post, "/v1/queues/orders/leases", json={"wait": 20})
        eventually(lambda: orders.stats().consumers == 1)
        make("metrics")
        eventually(lambda: service.get("/v1/queues").status_code == 401)
        orders.send("x")
        assert problem(poll.result()) == (401, "unauthorized")
    eventually(lambda: (orders.stats().ready, orders.stats().processing) == (1, 0))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:80", "[::1]:1", "127.0.0.2"])
def test_with_no_auth_this_machine_is_served(service, host):
    assert service.get("/v1/queues", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "localhost.evil.example"},
        {"host": ""},
        {"x-forwarded-for": "10.0.0.1"},
        {"forwarded": "for=10.0.0.1"},
        {"x-real-ip": "10.0.0.1"},
        {"via": "1.1 proxy"},
    ],
)
def test_with_no_auth_requests_from_other_machines_are_refused(service, headers):
    assert problem(service.get("/v1/queues", headers=headers)) == (401, "unauthorized")


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}]
)
def test_a_foreign_web_page_changes_nothing(service, app, name, headers):
    answer = service.post(f"/v1/queues/{name}/messages", content=b"x", headers=headers)
    assert problem(answer) == (403, "cross_site")
    assert app.queue(name).stats().ready == 0


# --- the commands ----------------------------------------------------------------------------------------------------


def reliq(url, *arguments):
    return run(*arguments, url=url)


def test_keys_are_made_listed_and_revoked(url, app):
    made = reliq(
        url, "keys", "create", "shop", "--scope", "enqueue", "--queue", "orders*", "--expires", "90d", "--json"
    )
    assert "From now on, each request and the dashboard need a key" in made.stderr
    assert "From now on" not in reliq(url, "keys", "create", "other", "--scope", "enqueue", "--queue", "x").stderr
    created = json.loads(made.stdout)
    assert judged(app.store.run(keyring.read_all()), created["key"], this_machines_ms())
    listed = next(one for one in json.loads(reliq(url, "keys", "list", "--json").stdout) if one["name"] == "shop")
    assert (listed["id"], listed["name"], listed["scopes"], listed["queues"]) == (
        created["id"], "shop", ["enqueue"], ["orders*"],
    )  # fmt: skip
    assert created["key"].partition(".")[2] not in reliq(url, "keys", "list").stdout
    assert reliq(url, "keys", "revoke", created["id"]).returncode == 0
    assert reliq(url, "keys", "revoke", created["id"]).returncode == 1


def test_no_auth_on_an_address_of_other_machines_is_refused(url):
    refused = reliq(url, "api", "--no-auth", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2
    assert "host is '0.0.0.0'" in refused.stderr
    assert "reliq key create" in refused.stderr


def test_the_start_says_that_there_is_no_key(url):
    with own_process(url, no_auth=False) as (child, client):
        assert problem(client.get("/v1/queues")) == (401, "unauthorized")
        terminated(child)
        assert child.stderr is not None
        said = child.stderr.read().decode()
    assert "the service answers every request with 401: there is no API key: create one with `reliq key create" in said


def test_no_auth_can_be_asked_for_by_the_environment(url):
    with own_process(url, no_auth=False, RELIQ_NO_AUTH="1") as (_, client):
        assert client.get("/v1/queues").status_code == 200


@pytest.mark.parametrize("path", ["/v1/queues?token={key}", "/?access_token={key}", "/nothing?%74oken={key}"])
def test_the_access_log_has_no_query(url, make, monkeypatch, caplog, path):
    access = logging.getLogger("uvicorn.access")
    monkeypatch.setattr(access, "propagate", True)
    key = make("metrics")
    with caplog.at_level(logging.INFO), serving(url, access_log=True) as service:
        service.get(path.format(key=key))
    lines = [record.getMessage() for record in caplog.records if record.name == access.name]
    assert f'"GET {path.partition("?")[0]} HTTP/1.1"' in lines[-1]
    assert not any("?" in line or key in line for line in lines)


# --- two credentials, and a key that ends while a request runs --------------------------------------------------------

TWICE = {
    "two headers": ([("authorization", "Bearer {key}"), ("authorization", "Bearer {key}")], ""),
    "two of different kinds": ([("authorization", "Bearer {key}"), ("authorization", "Basic eDp5")], ""),
    "two in one header": ([("authorization", "Bearer {key}, Bearer {key}")], ""),
    "a header and the query": ([("authorization", "Bearer {key}")], "?access_token={key}"),
    "a header and the query, as others call it": ([("authorization", "Bearer {key}")], "?API_KEY={key}"),
    "the query twice": ([], "?access_token={key}&token={key}"),
    "a header and one that others use": ([("authorization", "Bearer {key}"), ("x-api-key", "{key}")], ""),
    "a header and one for proxies": ([("authorization", "Bearer {key}"), ("proxy-authorization", "Bearer {key}")], ""),
}
PLACES = [
    *(("POST", f"/v1/queues/orders/{call}") for call in ("messages", "messages/batch", "leases")),
    *(("GET", f"/v1/queues/orders{call}") for call in ("", "/dead")), ("POST", "/v1/topics/a/messages"),
    *(("GET", path) for path in ("/", "/metrics", "/queues/orders", "/queues/orders/dead")),
    ("POST", "/queues/orders/pause"),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "query"), TWICE.values(), ids=TWICE.keys())
@pytest.mark.parametrize(("method", "path"), PLACES)
def test_two_credentials_are_refused_everywhere_alike(guarded, make, app, headers, query, method, path):
    app.queue("orders").send("x")
    key = make("enqueue", "consume", "operate", "metrics", queues=("*",))
    given = [(name, value.format(key=key)) for name, value in headers]
    content = {"content": b'{"body": 1}'} if method == "POST" else {}
    given += [("content-type", "application/json")]
    answer = guarded.request(method, path + query.format(key=key), headers=given, **content)
    assert answer.status_code == 400
    stats = app.queue("orders").stats()
    assert (stats.ready, stats.paused) == (1, False)


@pytest.mark.parametrize("how", ["revoked", "expired", "narrowed"])
def test_a_key_that_ends_during_a_poll_gets_no_lease(guarded, make, app, how):
    key = make("consume", expires="1h")
    identity = key.partition(".")[0]
    orders = app.queue("orders")
    app.store.call(ops.announce("orders"))
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(guarded.post, "/v1/queues/orders/leases", json={"wait": 20}, headers=bearer(key))
        eventually(lambda: orders.stats().consumers == 1)
        kept = app.store.run(keyring.read_all())[identity]
        if how == "revoked":
            app.store.run(keyring.revoke(identity))
        else:
            changes = {"expires_at": 1} if how == "expired" else {"queues": ("nothing",)}
            text = msgspec.json.encode(msgspec.structs.replace(kept, **changes))
            app.store.call(command("HSET", API_KEYS, identity, text))
        eventually(lambda: guarded.post("/v1/queues/orders/leases", json={}, headers=bearer(key)).status_code >= 401)
        orders.send("x")
        assert poll.result().status_code in ((401,) if how != "narrowed" else (403,))
    eventually(lambda: (orders.stats().ready, orders.stats().processing) == (1, 0))
    assert orders.stats().counters.get("reclaimed", 0) == 0


def test_a_key_that_is_revoked_during_a_batch_enqueues_no_more(guarded, make, app):
    key = make("enqueue")
    orders = app.queue("orders")

    def lines():
        yield b'{"body": 1}\n' * 1000
        eventually(lambda: orders.stats().ready == 1000)
        app.store.run(keyring.revoke(key.partition(".")[0]))
        call = "/v1/queues/orders/messages"
        eventually(lambda: guarded.post(call, json={}, headers=bearer(key)).status_code == 401)
        yield b'{"body": 1}\n' * 1000

    headers = {**bearer(key), "content-type": "application/x-ndjson"}
    with httpx.Client(base_url=guarded.base_url, timeout=30) as client:
        answer = client.post("/v1/queues/orders/messages/batch", content=lines(), headers=headers)
    assert problem(answer) == (401, "unauthorized")
    assert answer.json()["enqueued"] == orders.stats().ready == 1000


def test_the_list_of_keys_says_until_when_each_is_valid(url, make):
    make("operate")
    make("operate", expires=86_400.0)
    listed = reliq(url, "keys", "list").stdout
    assert ("until for ever" in listed, listed.count("for ever"), listed.count("until 2")) == (False, 1, 1)


@pytest.mark.parametrize("target", ["secret", "orders-dead", None])
def test_dead_letters_go_only_to_a_queue_of_the_key(guarded, make, app, target):
    mine = bearer(make("operate"))
    app.queue("orders").configure(dead_to="orders-old")
    answer = guarded.patch("/v1/queues/orders", json={"dead_to": target}, headers=mine)
    if target == "secret":
        assert problem(answer) == (403, "forbidden")
        assert "no right to a queue 'secret'" in answer.json()["detail"]
    assert app.queue("orders").config().dead_to == ("orders-old" if target == "secret" else target)
