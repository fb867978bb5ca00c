"""`queue.delayed`: what waits, until when, and because of which error."""

import json
from contextlib import closing

import pytest

from reliq import ops
from reliq.cli import main
from reliq.errors import InvalidSetting
from reliq.model.keys import QueueKeys
from reliq.transport.store import Store

KEYS = QueueKeys("q")


@pytest.fixture
def promote(url):
    """What a monitor does; how many became ready."""
    with closing(Store(url)) as store:
        yield lambda: store.call(ops.promote(KEYS, 1000))[0]


def fail(queue, delay="1h", error="no such order"):
    identity = queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        consumer.retry(message, delay, error)
    return identity


def test_delayed_messages_are_listed_in_the_order_in_which_they_are_due(queue):
    later = queue.send("x", delay="2h")
    retry = fail(queue, delay="1h")
    sooner = queue.send("x", delay="30m")
    assert [message.id for message in queue.delayed.list()] == [sooner, retry, later]
    assert [message.id for message in queue.delayed.list(failed=True)] == [retry]


def test_a_retry_shows_its_failures_and_its_last_error(queue):
    identity = fail(queue, delay="1h", error="no such order")
    (message,) = queue.delayed.list()
    assert (message.id, message.failures, message.last_error.error_class) == (identity, 1, "Retry")
    summary = message.summary()
    assert (summary["error_class"], summary["error"], summary["failures"]) == ("Retry", "no such order", 1)
    assert summary["due_at"] - summary["failed_at"] == pytest.approx(3_600_000, abs=5000)
    assert "body" not in summary


def test_pages_cover_each_message_once_also_those_due_together(queue, client):
    ids = set(queue.send_many(range(120), delay="1h"))
    for element in client.zrange(KEYS.delayed, 0, 79):
        client.zadd(KEYS.delayed, {element: 2_000_000_000_000})
    found, after = [], None
    while True:
        page = queue.delayed.list(limit=7, after=after)
        found += [message.id for message in page]
        if (after := page.next) is None:
            break
    assert len(found) == 120
    assert set(found) == ids


def test_what_is_no_message_and_an_impossible_time_are_shown_as_such(queue, client):
    client.zadd(KEYS.delayed, {b"\xff\x00 not an element": 7, b"another": "+inf"})
    first, second = queue.delayed.list()
    assert (first.readable, first.body, first.summary()["id"]) == (False, b"\xff\x00 not an element", "")
    assert second.due_at == 2**53


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"after": "x"}, {"limit": 100_001}])
def test_wrong_paging_is_refused(queue, wrong):
    with pytest.raises(InvalidSetting):
        queue.delayed.list(**wrong)


def test_the_command_line_lists_delayed_messages(app, client, capsys):
    queue = app.queue("q")
    retry, later = fail(queue, error="no such order\u2028"), queue.send("x", delay="2h")
    client.zadd(KEYS.delayed, {b"not an element": "+inf"})
    assert main.main(["delayed", "list", "q", "--url", app.url]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith(retry)
    assert "failures=1  Retry: no such order" in first
    assert second.startswith(later)
    assert third.startswith("(not a message)")
    assert "(impossible time)" in third
    assert main.main(["delayed", "list", "q", "--json", "--failed", "--limit", "1", "--url", app.url]) == 0
    page = json.loads(capsys.readouterr().out)
    assert [message["id"] for message in page["messages"]] == [retry]
    assert main.main(["delayed", "list", "q", "--json", "--after", page["next"], "--url", app.url]) == 0
    assert [message["id"] for message in json.loads(capsys.readouterr().out)["messages"]] == [later, ""]


def test_a_message_runs_now_by_its_id_and_its_failures_stay(queue, promote):
    retry, other = fail(queue), queue.send("x", delay="2h")
    assert queue.delayed.run(retry, "unknown") == 1
    with queue.consumer() as consumer:
        promote()
        (message,) = consumer.claim()
        assert (message.id, message.failures) == (retry, 1)
        consumer.ack(message)
    assert [message.id for message in queue.delayed.list()] == [other]


@pytest.mark.parametrize(
    ("wanted", "due"),
    [
        ({"failed": True}, 2),
        ({"error_class": "Retry"}, 2),
        ({"error_class": "ValueError"}, 0),
        ({"headers": {"tenant": "acme"}}, 1),
        ({"headers": {"tenant": "acme"}, "failed": True}, 0),
        ({"all": True}, 4),
    ],
)
def test_the_messages_of_a_filter_run_now(queue, promote, wanted, due):
    fail(queue)
    fail(queue, delay="3h")
    queue.send("x", delay="2h", headers={"tenant": "acme"})
    queue.send("x", delay="2h")
    assert queue.delayed.run(**wanted, dry_run=True) == due
    assert promote() == 0
    assert queue.delayed.run(**wanted) == due
    assert promote() == due


def test_many_messages_run_now_each_once(queue, promote):
    queue.send_many(range(1200), delay="1h")
    seen: list[int] = []
    assert queue.delayed.run(all=True, progress=seen.append) == 1200
    assert seen[-1] == 1200
    assert promote() == 1000
    assert promote() == 200


@pytest.mark.parametrize("wanted", [{}, {"headers": {}}])
def test_without_ids_and_without_a_filter_nothing_runs(queue, promote, wanted):
    queue.send("x", delay="1h")
    with pytest.raises(InvalidSetting, match="needs ids, a filter, or all"):
        queue.delayed.run(**wanted)
    with pytest.raises(InvalidSetting, match="ids, or filters: not both"):
        queue.delayed.run("id", failed=True)
    assert promote() == 0


def test_the_command_runs_delayed_messages_now(queue, url, capsys):
    retry = fail(queue)
    queue.send("x", delay="1h")
    assert main.main(["delayed", "run", "q", retry, "--url", url]) == 0
    assert capsys.readouterr().out == "1 delayed message due now\n"
    assert main.main(["delayed", "run", "q", "--all", "--dry-run", "--json", "--url", url]) == 0
    assert json.loads(capsys.readouterr().out) == {"due": 1, "dry_run": True}
