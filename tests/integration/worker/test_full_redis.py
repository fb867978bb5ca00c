"""A full Redis takes no message; workers empty its queues, and operators can do what frees memory."""

import pytest

import reliq
from reliq.cli import main
from reliq.model.keys import QueueKeys
from tests.support.workers import eventually, working


@pytest.fixture
def fill(client):
    """Have Redis refuse what needs memory, until the end of the test."""
    yield lambda: client.config_set("maxmemory", 1)
    client.config_set("maxmemory", 0)


CALLS = {
    "step": lambda message: message.step("s", lambda: 1) and None,
    "link": lambda message: message.link("s") and None,
    "checkpoint": lambda message: message.checkpoint(1),
    "progress": lambda message: message.progress(0.5),
    "charge": lambda message: message.charge(3),
    "sleep": lambda message: message.sleep("s", seconds=0.01),
    "wait": lambda message: message.wait("s", timeout=0.01, default=1) and None,
}


@pytest.mark.parametrize("call", CALLS)
def test_what_a_handler_tells_of_its_run_is_stored(app, client, fill, call):
    app.handler("q", retry=reliq.fixed(0, limit=1))(CALLS[call])
    app.queue("q").send("x")
    fill()
    with working(app, monitor=True):
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 1)
    assert app.queue("q").stats().dead == 0


@pytest.mark.parametrize("what", ["emits", "sends"])
def test_a_handler_that_redis_has_no_memory_for_runs_again_and_has_not_failed(app, client, fill, what, monkeypatch):
    monkeypatch.setattr("reliq.worker.outcome._WHEN_REDIS_IS_FULL", 0.05)
    runs = []

    @app.handler("q", retry=reliq.fixed(0, limit=1))
    def handle(message):
        runs.append(message.failures)
        if what == "emits":
            message.emit("chunk")
        else:
            app.queue("other").send("y")

    app.queue("q").send("x")
    fill()
    with working(app, monitor=True):
        eventually(lambda: len(runs) > 2)
        client.config_set("maxmemory", 0)
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 1)
    assert set(runs) == {0}
    assert app.queue("q").stats().dead == 0


def test_messages_are_cancelled_wherever_they_are(app, fill):
    queue = app.queue("q")
    ready, delayed, (_, behind) = queue.send("x"), queue.send("x", delay=60), queue.send_many(["x"] * 2, key="k")
    fill()
    for one in (ready, delayed, behind):
        assert queue.cancel(one) is reliq.Cancellation.CANCELLED
    assert queue.cancel_many(key="k").cancelled == 1
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.waiting) == (0, 0, 0)


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_queue_is_deleted_by_force_which_makes_room(app, client, fill, partitions, capsys):
    queue = app.queue("orders")
    if partitions > 1:
        queue.configure(partitions=partitions)
    queue.send_many(["x"] * 100)
    queue.send("later", delay=60)
    fill()
    assert delete(app, "--force") == 0
    assert "it had 100 ready, 1 delayed" in capsys.readouterr().out
    client.config_set("maxmemory", 0)
    assert [key for key in client.keys("*") if b"{orders" in key] == []


def test_an_unused_queue_is_deleted_when_there_is_room(app, client, fill, capsys):
    app.queue("orders").configure(max_length=5)
    fill()
    assert delete(app) == 1
    refused = "Redis is at its maxmemory: make room before you delete queue 'orders', or use --force"
    assert refused in capsys.readouterr().err
    client.config_set("maxmemory", 0)
    assert delete(app) == 0


def test_a_queue_with_counts_of_a_batch_is_deleted_when_there_is_room(app, client, fill, capsys):
    with app.batch(on_done=("done", "all")) as batch:
        batch.send("orders", "x")
    fill()
    assert delete(app, "--force") == 1
    assert "make room before you delete queue 'orders'\n" in capsys.readouterr().err
    assert app.queue("orders").stats().ready == 1


def delete(app, *arguments):
    return main.main(["queue", "delete", "orders", "--yes", "--url", app.url, *arguments])


def test_what_was_received_stays_in_flight_and_what_is_delayed_runs_now(app, client, fill):
    queue = app.queue("q")
    queue.send("x")
    queue.send("later", id="later", delay=60)
    (received,) = queue.receive(1, visibility="60s", attempt="a")
    fill()
    assert [one.receipt for one in queue.receive(1, visibility="1h", attempt="a")] == [received.receipt]
    assert queue.change_visibility([(received.receipt, "2h")]) == ["changed"]
    ((_, until),) = client.zrange(QueueKeys("q").received, 0, -1, withscores=True)
    assert until / 1000 > client.time()[0] + 3700
    assert queue.delayed.run("later") == 1


def test_a_flow_across_queues_goes_on_and_another_one_is_cancelled(app, fill):
    ran = []
    for name in ("one", "two"):
        app.handler(name)(lambda message: ran.append(message.body.decode()))
    with app.flow() as flow:
        first = flow.send("one", "first")
        flow.send("two", "then", after=[first])
    with app.flow() as other:
        never = other.send("three", "never")
        other.send("three", "neither", after=[never])
    fill()
    app.cancel_flow(other.id)
    assert (app.queue("three").stats().ready, app.queue("three").stats().waiting) == (0, 0)
    with working(app, monitor=True):
        eventually(lambda: ran == ["first", "then"])
    assert app.queue("three").stats().counters["cancelled"] == 2


def test_a_batch_is_closed_and_ends(app, client, fill):
    app.handler("q")(lambda message: None)
    with app.batch(on_done=("done", "all")) as batch:
        batch.send("q", "x")
        fill()
    with working(app, monitor=True):
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 1)
        client.config_set("maxmemory", 0)  # what follows is a message, which needs memory
        eventually(lambda: app.queue("done").stats().ready == 1)
