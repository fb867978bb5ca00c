"""Dead letters: listed, filtered, redriven, purged; every test runs for the sync and for the asyncio face."""

import time

import pytest

import reliq
from reliq import InvalidSetting, ops
from reliq.model.dead_letter import letter_field
from reliq.model.keys import QueueKeys
from reliq.ops import command
from tests.support.turns import Monitor

KEYS = QueueKeys("q")


def kill(queue, *texts, headers=None):
    """Send a message for each text, and have it die of an error with this text."""
    ids = queue.send_many(list(texts), headers=headers)
    with queue.consumer() as consumer:
        for message in consumer.claim(limit=len(texts)):
            consumer.dead(message, message.body.decode())
    return ids


def age(store, identity, milliseconds):
    """Move a letter's death into the past."""
    score = store.call(command("HGET", KEYS.index, letter_field(identity)))
    (element,) = store.call(command("ZRANGEBYSCORE", KEYS.dead, score, score))
    store.call(command("ZADD", KEYS.dead, float(score) - milliseconds, element))
    store.call(command("HSET", KEYS.index, letter_field(identity), float(score) - milliseconds))


def ids(letters):
    return [letter.id for letter in letters]


def test_a_letter_keeps_everything_and_says_why_it_died(queue):
    identity = queue.send({"order": 1}, headers={"shop": "eu"})
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        consumer.retry(message, error="first trouble")
        (message,) = consumer.claim()
        consumer.dead(message, "last trouble")
    letter = queue.dead.get(identity)
    assert (letter.json(), letter.headers, letter.queue) == ({"order": 1}, {"shop": "eu"}, "q")
    assert (letter.reason, letter.failures, letter.deliveries) == ("rejected", 2, 0)
    assert (letter.first_error.text, letter.last_error.text) == ("first trouble", "last trouble")
    assert abs(letter.died_at - time.time() * 1000) < 5000
    assert queue.dead.get("nobody") is None


def test_the_history_is_capped_and_so_is_each_text(queue):
    identity = queue.send("x")
    with queue.consumer() as consumer:
        for number in range(30):
            (message,) = consumer.claim()
            consumer.retry(message, error=f"{number}: " + "ü" * 100_000)
        (message,) = consumer.claim()
        consumer.dead(message, "the end " * 100_000)
    letter = queue.dead.get(identity)
    assert letter.failures == 31
    assert len(letter.errors) == 10
    assert letter.first_error.text.startswith("0: ")
    assert letter.last_error.text.startswith("the end")
    assert all(len(error.text.encode()) <= 4096 for error in letter.errors)
    assert len(letter.element) < 12_000


def test_pages_go_from_the_latest_back_and_miss_nothing(queue):
    sent = kill(queue, *(str(number) for number in range(25)))
    seen, after = [], None
    while True:
        page = queue.dead.list(limit=7, after=after)
        seen += ids(page)
        after = page.next
        if after is None:
            break
    assert sorted(seen) == sorted(sent)
    deaths = [queue.dead.get(identity).died_at for identity in seen]
    assert deaths == sorted(deaths, reverse=True)


def test_dead_letters_are_listed_by_filters(queue, store):
    eu = kill(queue, "a", "b", headers={"shop": "eu"})
    us = kill(queue, "c", headers={"shop": "us"})
    store.call(command("LPUSH", KEYS.messages, b"\xc1 garbage"))
    with queue.consumer() as consumer:
        consumer.claim()
    age(store, eu[0], 3_600_000)
    listed = queue.dead.list
    assert ids(listed(headers={"shop": "us"})) == us
    assert set(ids(listed(reason="rejected"))) == {*eu, *us}
    assert [letter.body for letter in listed(reason="decode")] == [b"\xc1 garbage"]
    assert ids(listed(older_than="30m")) == [eu[0]]
    assert set(ids(listed(newer_than="30m", reason="rejected"))) == {eu[1], *us}
    assert len(listed(error_class="Dead")) == 3
    assert len(listed(error_class="reliq.Dead")) == 3
    assert len(listed(error_class="KeyError")) == 0
    assert ids(listed(ids=us)) == us
    with pytest.raises(InvalidSetting, match="max_failures, max_deliveries, expired, rejected, decode"):
        listed(reason="bad luck")
    with pytest.raises(InvalidSetting, match="after"):
        listed(after="nonsense")


def test_redrive_puts_back_in_the_order_of_death_with_failures_reset(queue):
    sent = kill(queue, "a", "b", "c")
    result = queue.dead.redrive()
    assert (result.matched, result.redriven, result.stopped) == (3, 3, "")
    with queue.consumer() as consumer:
        messages = consumer.claim(limit=5)
        assert sorted(ids(messages)) == sorted(sent)
        assert all((one.failures, one.errors, one.reason) == (0, (), "") for one in messages)
    assert (queue.stats().dead, queue.stats().counters["redriven"]) == (0, 3)


def test_redrive_can_keep_the_failures(queue):
    kill(queue, "a")
    queue.dead.redrive(keep_failures=True)
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert (message.failures, len(message.errors)) == (1, 1)


def test_a_dry_run_only_counts(queue):
    kill(queue, *"abcde")
    assert queue.dead.redrive(dry_run=True, limit=3).matched == 3
    assert queue.dead.redrive(dry_run=True).matched == 5
    assert queue.stats().dead == 5


def test_a_redrive_by_ids_leaves_other_dead_letters(queue):
    a, b, c = kill(queue, *"abc")
    assert queue.dead.redrive(ids=[a]).redriven == 1
    assert queue.dead.redrive(ids=b).redriven == 1
    assert queue.dead.redrive(limit=5, ids=[a, b]).redriven == 0
    assert ids(queue.dead.list()) == [c]


def test_a_redrive_of_many_passes_over_those_that_do_not_match(queue):
    odd = kill(queue, *(str(number) for number in range(900)), headers={"parity": "odd"})
    kill(queue, *(str(number) for number in range(700)), headers={"parity": "even"})
    seen: list[int] = []
    result = queue.dead.redrive(headers={"parity": "odd"}, progress=seen.append)
    assert (result.redriven, seen[-1]) == (len(odd), len(odd))
    assert queue.stats().dead == 700


def test_a_limit_says_that_there_may_be_more(queue):
    kill(queue, *"abc")
    result = queue.dead.redrive(limit=2)
    assert (result.redriven, result.stopped) == (2, "the limit of 2 is reached")


def test_a_redrive_stops_when_too_many_die_again(queue, store):
    """Another consumer buries every letter as soon as it is back, like a broken handler."""
    kill(queue, *(str(number) for number in range(200)))
    other = reliq.Reliq(store.where).queue("q")

    def bury(matched):
        with other.consumer() as consumer:
            for message in consumer.claim(limit=50):
                consumer.dead(message, "again")

    result = queue.dead.redrive(rate=500, stop_above=0.5, progress=bury)
    assert "died again, more than 50%" in result.stopped
    assert result.redriven < 200
    assert queue.stats().dead + queue.stats().ready == 200


def test_a_pause_of_a_redrive_is_not_made_up_for(queue, monkeypatch):
    """Else all letters are back at once after it, before the first of them can die again."""
    kill(queue, *(str(number) for number in range(40)))
    ahead, pauses, clock, pause = [0.0], list[float](), time.monotonic, ops.Sleep

    def suspended(matched):
        ahead[0] += 60 if matched == 5 else 0

    def paused(seconds):
        pauses.append(seconds)
        ahead[0] += seconds
        return pause(0.0)

    monkeypatch.setattr(time, "monotonic", lambda: clock() + ahead[0])
    monkeypatch.setattr(ops, "Sleep", paused)
    assert queue.dead.redrive(rate=1, progress=suspended).redriven == 40
    assert pauses.count(0.0) < 10, "many at once"


@pytest.mark.parametrize(
    "bad", [{"rate": 0}, {"rate": -1}, {"limit": 0}, {"stop_above": 2, "rate": 1}, {"stop_above": 0.1}, {"reason": "x"}]
)
def test_options_that_make_no_sense_are_refused(queue, bad):
    with pytest.raises(InvalidSetting):
        queue.dead.redrive(**bad)


def test_what_did_not_decode_goes_back_as_the_bytes_it_was(queue, store):
    store.call(command("LPUSH", KEYS.messages, b"\xc1 from the future"))
    with queue.consumer() as consumer:
        assert consumer.claim() == []
    assert queue.dead.redrive(reason="decode").redriven == 1
    assert store.call(command("LRANGE", KEYS.messages, 0, -1)) == [b"\xc1 from the future"]


def test_purge_needs_a_filter_or_all(queue):
    a, b, _ = kill(queue, *"abc")
    with pytest.raises(InvalidSetting, match="needs ids, a filter, or all"):
        queue.dead.purge(error_text="")  # every error says it
    with pytest.raises(InvalidSetting, match="needs ids, a filter, or all"):
        queue.dead.purge()
    assert queue.dead.purge(ids=[a, b]) == 2
    assert queue.dead.purge(all=True) == 1
    assert (queue.stats().dead, queue.stats().counters["purged_dead"]) == (0, 3)


def test_retention_is_off_until_it_is_configured_and_counts_what_it_trims(queue, store):
    old, *_ = kill(queue, *"abcdef")
    age(store, old, 8 * 86_400_000)
    monitor = Monitor(store)
    monitor.tidy()
    assert queue.stats().dead == 6
    queue.configure(dead_max_age="7d")
    monitor.tidy()
    assert (queue.stats().dead, queue.stats().counters["trimmed"]) == (5, 1)
    queue.configure(dead_max_count=2)
    monitor.tidy()
    assert (queue.stats().dead, queue.stats().counters["trimmed"]) == (2, 4)
