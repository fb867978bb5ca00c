"""A client that a generator makes of the OpenAPI document, without a word of ours."""

import importlib
import json
import os
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path

import pytest

from reliq_api.access import keyring
from reliq_api.app import create_app
from tests.integration.api.serving import serving

CONFIG = "content_type_overrides: {application/x-ndjson: application/octet-stream}"


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The package; nothing of the document may have been left out of it."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "openapi.json").write_text(json.dumps(create_app().openapi()))
    (folder / "config.yml").write_text(CONFIG)
    tools = Path(sys.executable).parent
    subprocess.run(
        [tools / "openapi-python-client", "generate", "--path", "openapi.json", "--config", "config.yml",
         "--meta", "none", "--output-path", "generated_reliq", "--fail-on-warning"],
        cwd=folder, env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}, check=True, timeout=120,
    )  # fmt: skip
    sys.path.insert(0, str(folder))
    yield lambda name: importlib.import_module(f"generated_reliq.{name}")
    sys.path.remove(str(folder))


@pytest.fixture
def client(generated, app, url):
    key = app.store.run(keyring.create("generated", keyring.SCOPES, ("*",), None, 0.0))
    with serving(url) as service:
        make = generated("client").AuthenticatedClient
        with make(base_url=str(service.base_url).rstrip("/"), token=key, timeout=30) as client:
            yield client


def test_a_generated_client_has_a_function_named_after_every_call(generated):
    document = create_app().openapi()
    for calls in document["paths"].values():
        for call in calls.values():
            module = call["tags"][0].replace(" ", "_")
            assert callable(generated(f"api.{module}.{call['operationId']}").sync_detailed)


def test_a_message_is_enqueued_leased_and_settled(generated, client, app):
    models = generated("models")
    message = models.NewMessage.from_dict({"body": {"order": 1}, "headers": {"tenant": "a"}})
    sent = generated("api.messages.enqueue").sync("orders", client=client, body=message, idempotency_key="k")
    assert sent.deduplicated is False

    lease = generated("api.leases.lease").sync("orders", client=client, body=models.LeaseRequest(limit=5, wait=1))
    (given,) = lease.messages
    assert (given.id, given.body, given.headers.to_dict()) == (sent.id, {"order": 1}, {"tenant": "a"})

    settled = generated("api.leases.settle").sync(
        "orders", lease.lease, client=client, body=models.SettleRequest(ack=[given.id])
    )
    assert [(one.id, one.code) for one in settled.results] == [(sent.id, "done")]
    assert app.queue("orders").stats().counters["acked"] == 1


def test_a_topic_takes_bytes(generated, client, app):
    types = generated("types")
    assert generated("api.topics.bind").sync("mailer", "order.#", client=client).changed
    published = generated("api.topics.publish").sync(
        "order.created", client=client, body=types.File(payload=b"\xff\x00"), mandatory=True
    )
    assert list(published.queues.to_dict()) == ["mailer"]
    with app.queue("mailer").consumer() as consumer:
        assert [message.body for message in consumer.claim()] == [b"\xff\x00"]


def test_an_error_is_a_problem_with_its_code(generated, client):
    answer = generated("api.queues.show").sync_detailed("nothing", client=client)
    assert (answer.status_code, answer.parsed.code) == (HTTPStatus.NOT_FOUND, "queue_not_found")
