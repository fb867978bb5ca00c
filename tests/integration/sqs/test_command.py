"""The command line: `reliq sqs`, its keys, and `reliq api --sqs`."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import httpx
import pytest
from fastapi import FastAPI

from tests.integration.sqs.serving import client, own_process, server
from tests.integration.sqs.test_messages import received
from tests.support import commands
from tests.support.ports import free_port
from tests.support.workers import ROOT, eventually, process

ENVIRONMENT = {"RELIQ_SQS_KEY": "a text that encrypts secrets"}


def run(*arguments, url, status=0, **environment):
    with process("sqs", *arguments, "--url", url, folder=ROOT, **environment) as child:
        printed, errors = child.communicate(timeout=60)
    assert child.returncode == status, errors
    return (printed if status == 0 else errors).decode()


def test_keys_are_created_listed_and_revoked(url):
    made = run(
        "key", "create", "shop", "--scope", "send", "--queue", "orders*", "--expires", "90d", url=url, **ENVIRONMENT
    )
    identity, secret = (line.partition("=")[2] for line in made.splitlines())
    assert secret not in run("key", "list", url=url)
    (listed,) = json.loads(run("key", "list", "--json", url=url))
    assert (listed["id"], listed["name"], listed["scopes"], listed["queues"]) == (
        identity, "shop", ["send"], ["orders*"],
    )  # fmt: skip
    assert "revoked" in run("key", "revoke", identity, url=url)
    assert run("key", "list", "--json", url=url) == "[]\n"
    run("key", "revoke", identity, url=url, status=1)


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (["--no-auth", "--host", "0.0.0.0"], {}, "--no-auth serves this machine only"),
        ([], {}, "RELIQ_SQS_KEY"),
        ([], {"RELIQ_SQS_KEY": "short"}, "RELIQ_SQS_KEY has 5 characters: use 16 or more"),
        (["--key-file", "/nothing"], {}, "cannot be read"),
        (["--no-auth", "--account-id", "1"], {}, "12 digits"),
        (["--no-auth", "--endpoint-url", "x"], {}, "such as https://sqs.example.com"),
        (["key", "create", "n", "--scope", "send", "--queue", "a b"], ENVIRONMENT, "queue pattern"),
        (["key", "create", "n", "--scope", "send", "--queue", "*"], {}, "RELIQ_SQS_KEY"),
    ],
)
def test_a_wrong_option_is_a_sentence(url, arguments, environment, text, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = commands.run("sqs", *arguments, url=url)
    assert (done.returncode, text in done.stderr) == (2, True), done


def test_the_endpoint_serves_signed_requests_with_keys_from_a_file(url, tmp_path):
    file = tmp_path / "key"
    file.write_text("a text that encrypts secrets\n")
    made = run("key", "create", "n", "--scope", "manage", "--queue", "*", "--key-file", str(file), url=url)
    identity, secret = (line.partition("=")[2] for line in made.splitlines())
    with own_process(url, "--key-file", str(file), no_auth=False) as (_, port):
        assert client(port, key=identity, secret=secret).create_queue(QueueName="q")["QueueUrl"]


def test_the_monitor_of_the_endpoint_returns_what_a_worker_held_and_makes_delayed_messages_ready(url, name):
    with own_process(url) as (_, port):
        sqs = client(port)
        there = sqs.create_queue(QueueName=name)["QueueUrl"]
        sqs.send_message(QueueUrl=there, MessageBody="m", DelaySeconds=1)
        assert received(sqs, there, WaitTimeSeconds=10)[0]["Body"] == "m"


def test_an_endpoint_that_stops_answers_those_who_wait(url, name):
    with server(url) as running, ThreadPoolExecutor(5) as pool:
        sqs = client(running.config.port)
        there = sqs.create_queue(QueueName=name)["QueueUrl"]
        polls = [pool.submit(received, sqs, there, WaitTimeSeconds=20) for _ in range(5)]
        waits = cast("FastAPI", running.config.app).state.waits
        eventually(lambda: waits.waiting == 5)
        running.should_exit = True
        assert [poll.result(timeout=15) for poll in polls] == [[]] * 5


def test_sigterm_ends_the_process_in_order(url):
    with own_process(url) as (child, _):
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 0


def test_the_endpoint_exports_metrics_of_its_requests_and_of_its_queues(url, name):
    metrics = free_port()
    with own_process(url, "--metrics-port", str(metrics)) as (_, port):
        sqs = client(port)
        sqs.send_message(QueueUrl=sqs.create_queue(QueueName=name)["QueueUrl"], MessageBody="m")
        found = httpx.get(f"http://127.0.0.1:{metrics}/metrics").text
    assert 'route="/sqs/SendMessage",status="200"' in found
    assert f'queue="{name}"' in found


def test_the_service_serves_it_on_a_port_of_its_own(url, name):
    port, other = free_port(), free_port()
    arguments = ("api", "--url", url, "--port", str(port), "--no-auth", "--sqs", str(other), "--quiet")
    with process(*arguments, "--sqs-account-id", "123456789012", folder=None) as child:
        eventually(lambda: _healthy(port) and _healthy(other))
        sqs = client(other)
        there = sqs.create_queue(QueueName=name)["QueueUrl"]
        assert there == f"http://127.0.0.1:{other}/123456789012/{name}"
        httpx.post(f"http://127.0.0.1:{port}/v1/queues/{name}/messages", json={"body": "m"}).raise_for_status()
        assert received(sqs, there, WaitTimeSeconds=5)[0]["Body"] == "m"
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 0


def _healthy(port):
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz").is_success
    except httpx.TransportError:
        return False
