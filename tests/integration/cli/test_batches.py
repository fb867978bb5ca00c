"""batches, as a command; and the history that find prints."""

import json
import re


def test_batches_are_listed_with_their_progress(say, app):
    assert say("batches") == (0, "", "no batch is open\n")
    assert say("batches", "--json")[:2] == (0, "[]\n")
    with app.batch() as first:
        first.send_many("orders", [1, 2, 3, 4])
    with app.queue("orders").consumer() as consumer:
        done, dead = consumer.claim(limit=2)
        consumer.ack(done)
        consumer.dead(dead, "no")
        with app.batch() as second:
            status, out, _ = say("batches")
    lines = [re.sub(r"age=.*s$", "age=", line) for line in out.splitlines()]
    assert (status, lines) == (0, [
        f"{first.id}  closed     [##########..........]  50%  sent=4 handled=1 dead=1 open=2  age=",
        f"{second.id}  open       [....................]   0%  sent=0 handled=0 dead=0 open=0  age=",
    ])  # fmt: skip
    listed = json.loads(say("batches", "--json")[1])
    assert [(one["id"], one["open"]) for one in listed] == [(first.id, 2), (second.id, 0)]
    assert len(say("batches", "--limit", "1")[1].splitlines()) == 1


def test_one_batch_is_shown_in_full(say, app):
    with app.batch() as batch:
        batch.send("orders", 1)
    status, out, _ = say("batches", batch.id)
    facts = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert (status, facts["state"], facts["sent"], facts["open"], facts["batches"]) == (0, "closed", "1", "1", "0")
    assert facts["progress"].endswith("0%")
    assert json.loads(say("batches", batch.id, "--json")[1])["sent"] == 1
    status, out, err = say("batches", "0123456789ab")
    assert (status, out) == (1, "")
    assert "there is no batch 0123456789ab: it has ended, or never existed" in err
    assert say("batches", "0123456789ab", "--json")[:2] == (1, "null\n")


def test_find_prints_the_history_of_a_message_that_is_done(say, app):
    orders = app.queue("orders")
    orders.configure(history="1h")
    one = orders.send("x")
    with orders.consumer() as consumer:
        consumer.ack(*consumer.claim())
        status, out, _ = say("find", one)
    lines = [line.split() for line in out.splitlines()]
    assert (status, ["place", "done"] in lines) == (0, True)
    history = [line[1:] for line in lines if line[0] == "history"]
    assert [event[1] for event in history] == ["enqueued", "claimed", "acked"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", history[0][0])
    assert history[1][2] == consumer.id
