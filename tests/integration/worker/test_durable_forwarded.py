"""Records of steps go with dead letters that `dead_to` sends on to another queue."""

from unittest.mock import patch

import pytest

import reliq
from reliq import ops
from reliq.errors import RedisUnavailable
from reliq.model.keys import QueueKeys
from reliq.protocol import forwarding
from reliq.protocol.home import Home
from reliq.protocol.producer import ProducerPool
from tests.support.handlers import bind, working_as
from tests.support.turns import Monitor
from tests.support.workers import eventually

BOTH = pytest.mark.parametrize("partitions", [1, 4])


class Shop:
    """A queue with a handler that charges and then packs, and one that gets its dead letters, with the same handler."""

    def __init__(self, app, partitions=1):
        self.app = app
        self.ran: list[str] = []
        self.broken = True
        self.queue, self.other = app.queue("q"), app.queue("gone")
        self.other.configure(partitions=partitions)
        self.queue.configure(dead_to="gone")
        bind(app, "inline", self.handle, retry=0)
        app.handler("gone", retry=0)(self.handle)

    def note(self, name):
        self.ran.append(name)
        if name == "pack" and self.broken:
            raise ValueError("no box")
        return name

    def handle(self, message):
        assert message.step("charge", self.note, "charge") == "charge"
        message.step("pack", self.note, "pack", retry=0)

    def work(self, queue, messages=1):
        def ended():
            return sum(queue.stats().counters.get(one, 0) for one in ("acked", "dead_lettered"))

        before = ended()
        with working_as("inline", self.app):
            eventually(lambda: ended() == before + messages)


@BOTH
@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"limit_key": "k"}], ids=str)
def test_finished_steps_do_not_run_again_in_the_queue_that_gets_a_dead_letter(app, client, partitions, options):
    shop = Shop(app, partitions)
    shop.queue.send("order", **options)
    shop.work(shop.queue)
    shop.broken = False
    monitor = Monitor(app.store)
    assert monitor.forward() == 1
    shop.work(shop.other)
    assert shop.ran == ["charge", "pack", "pack"]
    monitor.end_waits()
    assert not list(client.scan_iter("*:followed"))
    assert not list(client.scan_iter("*:waits"))
    assert client.hget(QueueKeys("q").config, "recorded") is None


@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"limit_key": "k"}], ids=str)
@pytest.mark.parametrize(("before", "after"), [(1, 16), (16, 1), (16, 3)])
def test_a_record_comes_along_where_the_number_of_partitions_changes_meanwhile(app, client, before, after, options):
    shop = Shop(app, before)
    for _ in range(5):
        shop.queue.send("order", **options)
    shop.work(shop.queue, 5)
    send, changes = Home.send, iter([after])

    def late(home, *arguments):
        for partitions in changes:  # between what goes before a message and the message
            shop.other.configure(partitions=partitions)
        return (yield from send(home, *arguments))

    shop.broken = False
    with patch.object(Home, "send", late):
        assert Monitor(app.store).forward() == 5
    shop.work(shop.other, 5)
    assert shop.ran.count("charge") == 5
    Monitor(app.store).end_waits()
    assert not list(client.scan_iter("*:followed"))


def test_a_letter_whose_sending_was_broken_off_does_not_bring_its_old_record_again(app, client):
    shop = Shop(app)
    identity = shop.queue.send("order")
    shop.work(shop.queue)
    with patch.object(ops, "discard", side_effect=RedisUnavailable("away")), pytest.raises(RedisUnavailable):
        app.store.run(forwarding.forward(QueueKeys("q"), "gone", ProducerPool(), 1))
    with shop.other.consumer() as consumer:
        (message,) = consumer.claim(1)
        assert message.step("charge", shop.note, "again") == "charge"
        assert message.step("pack", lambda: "by hand") == "by hand"
        assert Monitor(app.store).forward() == 1
        assert message.step("post", lambda: "posted") == "posted"
        consumer.retry(message)
        (message,) = consumer.claim(1)
        assert message.id == identity
        assert [message.step(name, shop.note, "again") for name in ("charge", "pack", "post")] == [
            "charge", "by hand", "posted",
        ]  # fmt: skip
        consumer.ack(message)
    assert shop.ran == ["charge", "pack"]


def test_a_handler_of_that_queue_has_steps_of_its_own_in_a_group(app):
    shop = Shop(app)
    shop.queue.send("order")
    shop.work(shop.queue)
    Monitor(app.store).forward()
    with shop.other.consumer() as consumer:
        (message,) = consumer.claim(1)
        assert message.step("dead/tell", lambda: "told") == "told"
        with pytest.raises(reliq.StepsChanged):
            message.step("tell", lambda: "told")
        consumer.ack(message)


def test_a_signal_that_came_early_goes_with_a_dead_letter(app):
    queue, other = app.queue("q"), app.queue("gone")
    queue.configure(dead_to="gone")
    identity = queue.send("order")
    with queue.consumer() as consumer:
        (message,) = consumer.claim(1)
        message.step("ask", lambda: "asked")
        assert queue.signal(identity, "approval", "yes")
        consumer.dead(message, "no")
    Monitor(app.store).forward()
    with other.consumer() as consumer:
        (message,) = consumer.claim(1)
        assert message.step("ask", lambda: "again") == "asked"
        assert message.wait("approval") == "yes"
        consumer.ack(message)
