"""Search: messages by a text in their ids, headers, keys, errors and bodies, in a bounded part of the queue."""

import json

import pytest

from reliq import ops
from reliq.errors import InvalidSetting
from reliq.features.tracking import search_ops as op
from reliq.features.tracking import text_search
from reliq.model.found import Place


def seen(hits):
    return {(one.found.place.value, one.found.id, one.where) for one in hits}


def died(queue, body, reason):
    identity = queue.send(body, priority="high")
    with queue.consumer() as consumer:
        for message in consumer.claim(limit=100):
            if message.id == identity:
                consumer.dead(message, reason)
    return identity


@pytest.fixture(autouse=True)
def _in_small_parts(monkeypatch):
    monkeypatch.setattr(op, "SEARCH", 3)


@pytest.mark.parametrize("options", [{}, {"key": "customer 7"}])
def test_a_hit_that_waits_for_its_flow_says_so(app, queue, options):
    with app.flow() as flow:
        flow.send(queue.name, "Höpper", after=flow.send(queue.name, "x"), **options)
    (hit,) = queue.search("Höpper")
    assert hit.found.why == f"it waits for messages of its flow {flow.id}"


def test_a_text_is_found_in_each_place_and_in_each_part_of_a_message(queue):
    others = queue.send_many([{"other": place} for place in range(10)])
    ready = queue.send({"name": "Grace Höpper"})
    high = queue.send("x", priority="high", headers={"patient": "Höpper"})
    held, waiting = queue.send("x", key="Höpper"), queue.send("x", key="Höpper")
    delayed = queue.send(b"a " * 300 + "Höpper".encode() + b" b" * 300, delay="1h", id="delayed")
    hits = queue.search("Höpper")
    assert seen(hits) == {
        ("ready", ready, "body"), ("ready", high, "header"), ("ready", held, "key"), ("waiting", waiting, "key"),
        ("delayed", delayed, "body"),
    }  # fmt: skip
    assert (hits.looked, hits.total, hits.unread, hits.complete) == (15, 15, 0, True)
    by_id = {one.found.id: one for one in hits}
    assert by_id[ready].excerpt == '{"name":"Grace Höpper"}'
    assert by_id[high].excerpt == "patient=Höpper"
    assert by_id[waiting].found.waiting_for == "Höpper"
    assert "a a Höpper b b" in by_id[delayed].excerpt
    assert by_id[delayed].found.due_at > 0
    assert seen(queue.search("höpper")) == set()  # upper and lower case differ
    assert seen(queue.search("Höpper", place="delayed")) == {("delayed", delayed, "body")}
    assert seen(queue.search(others[3])) == {("ready", others[3], "id")}


def test_a_dead_letter_is_found_by_what_its_error_says(queue):
    letter = died(queue, {"order": 7}, "no such address")
    (hit,) = queue.search("no such")
    assert (hit.found.place, hit.found.id, hit.where, hit.excerpt) == (Place.DEAD, letter, "error", "no such address")
    assert hit.found.reason


def test_bodies_apart_are_searched_if_they_are_not_too_large_and_the_answer_says_how_many_were(queue):
    large = queue.send(b"x" * 200_000 + b" needle " + b"y" * 5000)
    queue.send(b"x" * 300_000 + b"needle", delay="1h")
    hits = queue.search("needle")
    assert seen(hits) == {("ready", large, "body")}
    assert "xxx needle yyy" in hits.hits[0].excerpt
    assert (hits.unread, hits.complete) == (1, False)
    assert hits.sentence() == (
        "looked through 2 of 2 messages; the bodies of 1 were not, because they are larger than 256 KiB"
    )


def test_a_search_looks_through_a_bounded_number_of_messages_of_every_place_and_says_so(queue):
    queue.send_many([{"n": n} for n in range(40)])
    early = queue.send("needle early", delay="1h")
    died(queue, "needle dead", "no")
    hits = queue.search("needle", most=20)
    assert (hits.looked, hits.total, hits.complete) == (20, 42, False)
    assert hits.sentence() == "looked through 20 of 42 messages, the newest of each place"
    assert early in {one.found.id for one in hits}


def test_a_search_ends_when_enough_were_found(queue):
    queue.send_many(["needle"] * 50)
    hits = queue.search("needle", limit=4)
    assert len(hits) == 4
    assert hits.looked < hits.total == 50


def test_names_of_fields_inside_of_an_element_are_not_found(queue):
    queue.send("x", key="k", priority="high")
    queue.send(b"x" * 5000, key="k")
    assert seen(queue.search("group")) == seen(queue.search("apart")) == set()


def test_a_cancelled_message_and_one_that_left_are_not_found(queue):
    first, second = queue.send_many(["needle", "needle"])
    queue.cancel(first)
    with queue.consumer() as consumer:
        assert [one.id for one in consumer.claim()] == [second]
        assert seen(queue.search("needle")) == set()


def test_all_partitions_are_searched(queue):
    queue.configure(partitions=3)
    sent = queue.send_many([{"needle": n} for n in range(30)])
    hits = queue.search("needle")
    assert {one.found.id for one in hits} == {*sent}
    assert (hits.looked, hits.total) == (30, 30)


def test_a_search_stops_at_a_number_of_bytes(queue, monkeypatch):
    monkeypatch.setattr(text_search, "MOST_BYTES", 500_000)
    queue.send_many([b"x" * 200_000] * 12)
    hits = queue.search("needle")
    assert hits.looked < hits.total == 12


@pytest.mark.parametrize(
    "wrong", [{"text": ""}, {"text": "x" * 1001}, {"place": "processing"}, {"limit": 0}, {"most": 0}]
)
def test_what_cannot_be_searched_is_refused(queue, wrong):
    with pytest.raises(InvalidSetting):
        queue.search(**{"text": "x", **wrong})


def test_bytes_that_are_no_message_are_searched_as_they_are(app, queue):
    app.store.call(ops.Op(("LPUSH", f"reliq:{{{queue.name}}}:messages", b"raw needle")))
    (hit,) = queue.search("needle")
    assert (hit.where, hit.excerpt) == ("body", "raw needle")
    assert json.dumps(queue.search("needle").summary())
