"""`reliq queue audit`: the books of the queues, for people and programs. The equation itself: test_overview."""

import json

import pytest

from reliq import ops
from reliq.cli import main
from reliq.model.keys import QueueKeys
from reliq_monitor.audit import Book, audit, balanced


def command(capsys, url, *arguments):
    status = main.main(["audit", "--url", url, *arguments])
    return status, capsys.readouterr().out


def lose(app, queue, messages):
    app.store.call(ops.command("RPOP", QueueKeys(queue).messages, messages))


def test_books_that_balance_end_with_0(app, url, capsys):
    app.queue("orders").send_many(["a", "b", "c"])
    with app.queue("orders").consumer() as consumer:
        consumer.ack(*consumer.claim(limit=2))
    status, out = command(capsys, url)
    assert (status, out.split()) == (0, ["orders", "3", "enqueued", "=", "2", "gone", "+", "1", "here:", "balanced"])


def test_missing_messages_end_with_1_and_are_told(app, url, capsys):
    app.queue("orders").send_many(["a", "b", "c"])
    app.queue("mails").send("a")
    lose(app, "orders", 2)
    status, out = command(capsys, url)
    assert status == 1
    assert "2 MISSING" in out
    assert "balanced" in out
    assert command(capsys, url, "mails")[0] == 0


def test_messages_that_were_never_enqueued_end_with_1(app, url, capsys):
    app.store.call([ops.announce("orders"), ops.command("LPUSH", QueueKeys("orders").messages, b"by hand")])
    status, out = command(capsys, url)
    assert status == 1
    assert "1 that were never enqueued" in out


def test_programs_get_every_term(app, url, capsys):
    app.queue("orders").send_many(["a", "b"])
    lose(app, "orders", 1)
    status, out = command(capsys, url, "--json")
    (book,) = json.loads(out)
    assert status == 1
    assert book == {
        "queue": "orders",
        "enqueued": 2,
        "gone": {
            "acked": 0, "forwarded": 0, "purged": 0, "purged_dead": 0, "trimmed": 0, "cancelled": 0, "withdrawn": 0,
            "replaced": 0, "sent_home": 0,
        },
        "here": {"prepared": 0, "parked": 0, "ready": 1, "processing": 0, "delayed": 0, "dead": 0},
        "missing": 1,
        "orphans": [],
    }  # fmt: skip


def test_no_queues_are_no_fault(url, capsys):
    assert command(capsys, url) == (0, "there are no queues\n")


@pytest.mark.parametrize(("missing", "says"), [(None, True), (0, True), (3, False), (-1, False)])
def test_what_is_not_sure_accuses_nobody(missing, says):
    assert balanced([Book("orders", 1, {}, {}, missing)]) is says


def test_all_queues_are_audited(app):
    for name in ("a", "b", "c"):
        app.queue(name).send("x")
    assert [book.queue for book in app.store.run(audit())] == ["a", "b", "c"]
