"""The OpenAPI document, and the service held against it."""

import hashlib
import json
import re
from pathlib import Path

import msgspec
import pytest

from reliq.contract import values
from reliq.model.keys import API_KEYS
from reliq.ops import command
from reliq_api.access import keyring
from reliq_api.app import create_app
from reliq_api.http.problems import CODES
from tests.integration.api.serving import serving
from tests.support.workers import eventually
from tools.site.reference import PAGES

DOCUMENT = create_app().openapi()
SECRET = "the-secret-of-a-key-that-may-do-everything"
KEY = keyring.ApiKey(
    name="contract",
    sha256=hashlib.sha256(SECRET.encode()).hexdigest(),
    scopes=keyring.SCOPES,
    queues=("*",),
    created_at=1_000_000,
)


@pytest.fixture(scope="session")
def _guarded(redis_server):
    with serving(redis_server.url) as client:
        yield client


@pytest.fixture
def guarded(app, _guarded):
    """The service with one key, and Redis otherwise empty: the client, and the header it needs."""
    app.store.call(command("HSET", API_KEYS, "contract", msgspec.json.encode(KEY)))
    headers = {"Authorization": f"Bearer contract.{SECRET}"}
    eventually(lambda: _guarded.get("/v1/queues", headers=headers).is_success)  # it may still know what was before
    return _guarded, headers


@pytest.fixture(scope="module")
def contract():
    import requests

    from tests.integration.api.contract import Contract

    # One connection for all cases: schemathesis would make one for each, and read the proxies of the environment.
    with requests.Session() as session:
        session.trust_env = False
        yield Contract(DOCUMENT, session)


CALLS = [(path, method) for path, calls in DOCUMENT["paths"].items() for method in calls]


# schemathesis would prepare all calls while tests are collected, by each worker of pytest-xdist.
@pytest.mark.parametrize("examples", [3, pytest.param(25, marks=pytest.mark.full)])
@pytest.mark.parametrize(("path", "method"), CALLS, ids=lambda one: one.upper() if one.isalpha() else one)
def test_every_call_keeps_its_contract(path, method, examples, guarded, contract):
    service, headers = guarded
    contract.keeps(path, method, examples, str(service.base_url), headers)


def test_every_code_is_in_the_documentation():
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "http.md").read_text()
    assert "](../reference/errors.md#over-http)" in page
    reference = PAGES["reference/errors.md"]()
    for code, kind in CODES.items():
        assert f"`{code}` | {kind.status} |" in reference


def test_every_code_is_in_the_document_or_beyond_any_call():
    said = json.dumps(DOCUMENT)
    beyond = {"invalid_http", "overloaded", "not_found", "method_not_allowed", "cross_site"}
    assert [code for code in CODES if code not in beyond and code not in said] == []


def test_every_call_needs_a_scope_and_says_so():
    for path, calls in DOCUMENT["paths"].items():
        for operation in calls.values():
            if path.startswith("/v1/") and not path.endswith("/signals/{token}"):  # a one-time link
                assert operation["x-scope"] in keyring.SCOPES
                assert operation["security"] == [{"key": []}]
                assert "401" in operation["responses"]


def test_the_documented_header_allows_each_durability_that_the_service_accepts():
    pattern = ""
    for one in DOCUMENT["paths"]["/v1/queues/{queue}/messages"]["post"]["parameters"]:
        if one["name"] == "Reliq-Durability":
            pattern = one["schema"]["pattern"]
    forms = [("memory", "memory"), ("fsync", "fsync"), ("replicas=2", "replicas=2"), ("replicas=01", "replicas=1")]
    for given, read in forms:
        assert values.durability(given) == read
        assert re.search(pattern, given)


def test_the_examples_of_requests_are_accepted(guarded):
    service, headers = guarded
    components = DOCUMENT["components"]["schemas"]
    for schema, path in [
        ("NewMessage", "messages"),
        ("ConfigChanges", ""),
        ("SettleRequest", "leases/h3f9c2d1e8a7b6c5d4e3f/settle"),
        ("RedriveRequest", "dead/redrive"),
    ]:
        for example in components[schema]["examples"]:
            method = "POST" if path else "PATCH"
            answer = service.request(method, f"/v1/queues/orders/{path}".rstrip("/"), json=example, headers=headers)
            assert answer.is_success, answer.text
