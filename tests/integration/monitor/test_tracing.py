"""One trace through real processes: HTTP in, a service, a worker, HTTP out; each exports to a real collector."""

import signal
import subprocess
import sys

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from reliq.cli import main
from tests.integration.api.serving import own_process
from tests.integration.monitor.collector import collecting
from tests.support.workers import ROOT, eventually, process

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CALLER}-01"


@pytest.fixture
def traces(monkeypatch):
    with collecting() as (address, collected):
        monkeypatch.setenv("RELIQ_OTEL", "1")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        yield collected


def lease(client, queue):
    (message,) = client.post(f"/v1/queues/{queue}/leases", json={"wait": 30}).json()["messages"]
    return message


def end(child):
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0


def carried(message):
    """Trace and span that a message came with."""
    return tuple(message["headers"]["traceparent"].split("-")[1:3])


def ids(span):
    return span.trace_id.hex(), span.span_id.hex()


def test_a_trace_goes_on_from_the_caller_through_service_and_worker_and_back_to_http(app, traces, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "api")
    with own_process(app.url) as (service, client):
        monkeypatch.setenv("OTEL_SERVICE_NAME", "worker")
        with process("worker", "tests.integration.monitor.traced_app:app", "--url", app.url, folder=ROOT) as worker:
            client.post("/v1/queues/orders/messages", json={"body": 1}, headers={"traceparent": PARENT})
            mail = lease(client, "mails")
            end(worker)
        end(service)

    (sent,) = traces("api", "send orders")
    (ran,) = traces("worker", "process orders")
    (sent_on,) = traces("worker", "send mails")
    assert {one.trace_id.hex() for one in (sent, ran, sent_on)} == {TRACE}
    assert (ran.parent_span_id, sent_on.parent_span_id) == (sent.span_id, ran.span_id)
    assert traces.ancestors(sent)[-1].hex() == CALLER  # with a span of FastAPI between, where it makes them
    assert [link.span_id for link in ran.links] == [sent.span_id]
    kinds = (Span.SPAN_KIND_PRODUCER, Span.SPAN_KIND_CONSUMER, Span.SPAN_KIND_PRODUCER)
    assert (sent.kind, ran.kind, sent_on.kind) == kinds
    assert carried(mail) == ids(sent_on)


def test_what_is_published_is_one_trace_in_all_queues(app, traces, monkeypatch):
    app.subscribe("orders", "order.#")
    app.subscribe("audit", "#")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "api")
    with own_process(app.url) as (service, client):
        client.post("/v1/topics/order.created/messages", json={"body": 1}, headers={"traceparent": PARENT})
        taken = [lease(client, queue) for queue in ("orders", "audit")]
        end(service)
    (sent,) = traces("api", "send order.created")
    assert traces.ancestors(sent)[-1].hex() == CALLER
    assert list(map(carried, taken)) == [ids(sent)] * 2


def test_without_tracing_the_service_hands_the_callers_context_to_whoever_leases(app):
    with own_process(app.url) as (_, client):
        for call in ("messages", "messages/batch"):
            body = [{"body": {"order": 1}}] if call.endswith("batch") else {"body": {"order": 1}}
            client.post(f"/v1/queues/orders/{call}", json=body, headers={"traceparent": PARENT})
            assert lease(client, "orders")["headers"] == {"traceparent": PARENT}


def test_a_worker_that_is_killed_by_its_grace_has_handed_over_its_spans(app, traces, monkeypatch):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "worker")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")  # so that only the end exports
    app.queue("orders").send(b"x")
    with process("worker", "tests.integration.monitor.traced_app:app", "--url", app.url, folder=ROOT) as worker:
        eventually(lambda: app.queue("orders").stats().counters.get("acked") == 1, timeout=60)
        assert traces("worker", "process orders") == []
        end(worker)
    assert len(traces("worker", "process orders")) == 1


def test_a_missing_extra_is_a_sentence(monkeypatch, capsys):
    monkeypatch.setenv("RELIQ_OTEL", "1")
    monkeypatch.delitem(sys.modules, "reliq.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert main.main(["stats"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("reliq: RELIQ_OTEL=1: reliq.otel needs the package opentelemetry: pip install ")
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize(
    "what", ["reliq", "reliq.worker.worker", "reliq.cli.main", "reliq_api.server", "reliq_monitor"]
)
def test_off_nothing_of_it_is_loaded(what, monkeypatch):
    """redis-py loads OpenTelemetry by itself where it is installed; reliq does not."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'api'}:{ROOT / 'monitor'}")
    code = f"import sys, {what}; print([one for one in sys.modules if one == 'reliq.otel' or '.otlp.' in one])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
