"""The limits of a queue as settings: what is accepted, what is refused and why, and what the statistics say."""

import time

import pytest

from reliq import NewMessage
from reliq.errors import InvalidMessage, InvalidSetting
from reliq.model.keys import QueueKeys


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"rate": 0}, "rate is 0: write a number, a slash"),
        ({"rate": "0/s"}, "rate is '0/s': it must be from 1/d"),
        ({"rate": "-5/s"}, "rate is '-5/s': write a number, a slash"),
        ({"rate": "100/parsec"}, "rate is '100/parsec': write a number, a slash"),
        ({"rate": "100"}, 'such as "100/s"'),
        ({"rate": "2000000/s"}, "it must be from 1/d to 1000000/s"),
        ({"rate": "nan/s"}, "rate is 'nan/s'"),
        ({"burst": 0}, "burst is 0"),
        ({"burst": 1.5}, "burst is 1.5"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"concurrency": -3}, "concurrency is -3"),
        ({"concurrency": True}, "concurrency is True"),
        ({"key_rate": "5"}, "key_rate is '5': write a number, a slash"),
        ({"key_concurrency": 0}, "key_concurrency is 0"),
        ({"fair": 1}, "fair is 1: it must be true or false"),
        ({"weights": {"gold": 0}}, "weights['gold'] is 0"),
        ({"weights": {"gold": -1}}, "weights['gold'] is -1"),
        ({"weights": {"gold": 2.5}}, "weights['gold'] is 2.5"),
        ({"weights": {"": 2}}, "weights has the key ''"),
        ({"weights": "gold"}, "weights is 'gold': give at most 1000 weights by key, such as"),
        ({"weights": "gold:4,silver"}, "weights is 'gold:4,silver': give"),
        ({"weights": 4}, "weights is 4: give at most 1000 weights"),
    ],
)
def test_a_wrong_limit_is_refused_with_its_value_and_nothing_is_changed(queue, wrong, text):
    queue.configure(rate="5/s", burst=2, concurrency=3)
    before = queue.config()
    with pytest.raises(InvalidSetting) as error:
        queue.configure(**wrong)
    assert text in str(error.value)
    assert queue.config() == before


def test_a_burst_without_a_rate_is_refused(queue):
    for wrong in ({"burst": 5}, {"burst": 5, "rate": None}):
        with pytest.raises(InvalidSetting, match="at once with a rate: set rate too"):
            queue.configure(**wrong)
    queue.configure(rate="5/s")
    assert queue.configure(burst=5).burst == 5
    assert queue.configure(burst=6, rate="6/s").burst == 6


@pytest.mark.parametrize(
    ("given", "kept"), [("100/s", "100/s"), (" 0.5 / s ", "0.5/s"), ("1/d", "1/d"), ("30/m", "30/m")]
)
def test_rates_as_they_are_written(queue, given, kept):
    assert queue.configure(rate=given).rate == kept
    assert queue.configure(rate=None).rate is None


def test_the_statistics_say_what_limits_the_queue(queue):
    queue.send_many(range(5))
    assert (queue.stats().limited_by, queue.stats().breaker) == ("", "closed")
    queue.configure(concurrency=2)
    with queue.consumer() as consumer:
        assert len(consumer.claim(5)) == 2
        assert queue.stats().limited_by == "concurrency"
        queue.configure(rate="1/h", concurrency=None)
        consumer.claim(5)
        assert queue.stats().limited_by == "rate"
        queue.open_breaker("1h")
        assert (queue.stats().limited_by, queue.stats().breaker) == ("breaker", "open")
        assert consumer.claim(5) == []
    assert queue.close_breaker() is True
    assert queue.close_breaker() is False
    assert queue.stats().counters["breaker_opened"] == 1


@pytest.mark.parametrize("duration", [0, -1, "soon"])
def test_a_breaker_is_not_opened_for_no_time(queue, duration):
    with pytest.raises(InvalidSetting, match="duration is"):
        queue.open_breaker(duration)
    assert queue.stats().breaker == "closed"


def test_the_limits_hold_for_consumers_by_hand(queue, client):
    queue.send_many(range(5))
    queue.configure(rate="1/h", burst=2)
    with queue.consumer() as one, queue.consumer() as other:
        first = one.claim(1)
        assert len(other.claim(5)) == 1
        assert one.claim(5, wait=0.05) == []
        one.release(*first)  # not given out again before the rate allows it
        assert other.claim(5) == []


def test_the_limits_hold_for_the_visits_of_a_cycle(queue):
    queue.cycle.add("ann", "bob", "cid")
    queue.configure(rate="1/h", burst=2)
    with queue.consumer() as consumer:
        assert len(consumer.claim(10)) == 2
        assert consumer.claim(10) == []


def test_a_queue_without_limits_has_no_key_for_them(queue, client):
    queue.send("x")
    with queue.consumer() as consumer:
        consumer.ack(*consumer.claim(1))
    keys = QueueKeys("q")
    assert client.exists(keys.flow, keys.freed) == 0


def test_what_another_program_has_written_stops_no_other_queue(queue, client):
    """A rate that is none is an error of this queue, before anything is taken."""
    queue.send("x")
    client.hset(QueueKeys("q").config, mapping={"rate": "many", "limited": 1})
    with queue.consumer() as consumer, pytest.raises(Exception, match="unexpected error"):
        consumer.claim(1)
    assert queue.config().rate == "many"
    queue.configure(rate=None)
    with queue.consumer() as consumer:
        assert len(consumer.claim(1)) == 1


def test_fairness_and_weights_as_they_are_set_and_read(queue, client):
    config = queue.configure(fair=True, weights={"gold": 4, "größe": 2}, key_rate="5/s", key_concurrency=3)
    assert (config.fair, config.weights, config.key_rate, config.key_concurrency) == (
        True, {"gold": 4, "größe": 2}, "5/s", 3,
    )  # fmt: skip
    assert queue.configure(weights="gold:2, free:1").weights == {"gold": 2, "free": 1}
    config = queue.configure(fair=False, weights=None, key_rate=None, key_concurrency=None)
    assert (config.fair, config.weights) == (False, {})
    assert {name.decode() for name in client.hkeys(QueueKeys("q").config)} == {"version", "limited"}


def test_a_message_has_one_key(queue):
    with pytest.raises(InvalidMessage, match=r"key is 'a' and limit_key 'b': give one of them"):
        queue.send("x", key="a", limit_key="b")
    with pytest.raises(InvalidMessage, match="limit_key is ''"):
        queue.send("x", limit_key="")
    queue.send("x", key="a", limit_key="a")
    queue.send_many(["y"], limit_key="b")
    with queue.consumer() as consumer:
        assert [(one.key, one.limit_key) for one in consumer.claim(5)] == [("a", "a"), ("", "b")]


def test_a_tenant_with_many_messages_does_not_delay_the_others(queue):
    queue.configure(fair=True)
    queue.send_many(range(500), limit_key="large")
    for tenant in ("a", "b"):
        queue.send_many(range(5), limit_key=tenant)
    with queue.consumer() as consumer:
        first = [message.limit_key for message in consumer.claim(15)]
    assert [first.count(tenant) for tenant in ("a", "b")] == [5, 5]


def test_the_keys_of_a_prepared_a_published_and_a_delayed_message_count(face, client):
    app = face()
    queue = app.queue("q")
    queue.configure(key_concurrency=1)
    app.subscribe("q", "order.*")
    app.publish("order.created", 1, limit_key="t")
    queue.prepare(2, limit_key="t").commit()
    queue.send(3, limit_key="u")
    with queue.consumer() as consumer:
        held = consumer.claim(10)
        assert [message.limit_key for message in held] == ["t", "u"]
        consumer.ack(*held)
        assert [message.json() for message in consumer.claim(10)] == [2]


def test_what_is_released_gives_its_token_back_and_what_is_left_behind_does_not(queue):
    """Work on what a consumer leaves behind, perhaps after an error, may have begun."""
    queue.configure(rate="2/h", burst=2)
    queue.send_many(range(3))
    with queue.consumer() as consumer:
        first, second = consumer.claim(limit=3)
        consumer.release(first)
        assert [one.id for one in consumer.claim(limit=3)] == [first.id]
        consumer.ack(second)
    with queue.consumer() as consumer:
        assert consumer.claim(limit=3) == []


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        ({"rate": "1/h", "burst": 2}, {}),
        ({"rate": "5/h", "burst": 5}, {"cost": 3}),
        ({"key_rate": "1/h"}, {"key": "k"}),
    ],
)
def test_expired_messages_take_nothing_of_a_rate(queue, limits, options):
    queue.configure(**limits)
    queue.send_many([NewMessage("late", ttl=0.001, **options) for _ in range(7)])
    time.sleep(0.01)
    started = queue.send("in time", **options)
    with queue.consumer() as consumer:
        claimed = []
        for _ in range(20):
            claimed += consumer.claim(limit=5)
        assert [message.id for message in claimed] == [started]
    assert queue.stats().counters["dead:expired"] == 7
