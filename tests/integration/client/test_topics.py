"""Topics as producers and operators use them; every test runs for the sync and for the asyncio face."""

import pytest

from reliq import InvalidMessage, InvalidName, NewMessage, OutcomeUnknown, QueueFull, Unroutable
from reliq.features.topics.ops import bind
from reliq.features.topics.steps import _FRESH
from reliq.model.keys import TOPICS
from reliq.ops import command
from reliq.transport.store import Store
from tests.support.losing_proxy import LosingProxy
from tests.support.proxy import Proxy
from tests.support.workers import eventually


@pytest.fixture
def shop(face):
    app = face()
    app.subscribe("mailer@welcome", "order.created.*")
    app.subscribe("audit@all", "#")
    app.subscribe("stock@orders", "order.#", "stock.*")
    return app


def ready(app, *queues):
    return {queue: app.queue(queue).stats().ready for queue in queues}


def test_each_subscription_gets_its_own_copy(shop):
    sent = shop.publish("order.created.eu", {"order": 1}, headers={"shop": "eu"})
    assert list(sent) == ["audit@all", "mailer@welcome", "stock@orders"]
    assert len(set(sent.values())) == 1
    for queue, identity in sent.items():
        with shop.queue(queue).consumer() as consumer:
            (message,) = consumer.claim()
            assert (message.id, message.json(), message.routing_key) == (identity, {"order": 1}, "order.created.eu")
            assert message.headers == {"shop": "eu"}
            consumer.ack(message)
    assert ready(shop, *sent) == dict.fromkeys(sent, 0)


def test_a_new_subscription_is_seen(shop):
    shop.publish("stock.low", 1)
    other = shop.subscribe("buyer@stock", "stock.low")
    assert other is True
    eventually(lambda: "buyer@stock" in shop.publish("stock.low", 1))


def test_another_producer_sees_a_new_subscription(shop, face):
    assert _FRESH < 1.0, "docs/how-to/topics.md promises a second"
    producer = face()
    assert list(producer.publish("stock.low", 1)) == ["audit@all", "stock@orders"]
    shop.subscribe("buyer@stock", "stock.low")
    eventually(lambda: "buyer@stock" in producer.publish("stock.low", 1))
    shop.unsubscribe("buyer@stock", "stock.low")
    eventually(lambda: "buyer@stock" not in producer.publish("stock.low", 1))


def test_subscribing_again_changes_nothing(shop):
    assert shop.subscribe("audit@all", "#") is False
    assert shop.unsubscribe("audit@all", "never.bound") is False
    assert [tuple(one) for one in shop.topics.list()] == [
        ("audit@all", "#"), ("mailer@welcome", "order.created.*"),
        ("stock@orders", "order.#"), ("stock@orders", "stock.*"),
    ]  # fmt: skip


def test_a_dry_run_sends_nothing(shop):
    assert shop.topics.match("order.created.eu") == ["audit@all", "mailer@welcome", "stock@orders"]
    assert shop.topics.match("order.created") == ["audit@all", "stock@orders"]
    assert ready(shop, "audit@all") == {"audit@all": 0}


def test_what_nobody_subscribes_to_is_counted(face):
    app = face()
    assert app.publish("order.created", 1) == {}
    assert app.topics.stats().unroutable == 1


def losing(redis_server, counter):
    """A network that loses the answer to each command that counts this."""
    return LosingProxy(redis_server.port, lambda data: counter in data and b"EVALSHA" not in data)


def test_a_publish_succeeds_when_the_answer_of_the_unroutable_count_is_lost(face, redis_server):
    with losing(redis_server, b"unroutable") as proxy:
        app = face(proxy.url)
        app.publish("order.created", 1)
        proxy.armed = True
        assert app.publish("order.created", 2) == {}
        assert proxy.lost == 1
        assert app.topics.stats().unroutable == 2


@pytest.mark.parametrize("send", ["send", "publish", "prepare"])
def test_a_refusal_whose_count_has_no_answer_is_counted_once(shop, face, redis_server, send):
    calls = {
        "send": lambda app: app.queue("stock@orders").send(1),
        "publish": lambda app: app.publish("stock.low", 1),
        "prepare": lambda app: app.queue("stock@orders").prepare(1),
    }
    shop.queue("stock@orders").configure(max_length=1)
    shop.publish("stock.low", 0)
    with losing(redis_server, b"rejected") as proxy:
        app, proxy.armed = face(proxy.url), True
        with pytest.raises(QueueFull, match="holds 1 of at most 1 messages"):
            calls[send](app)
        assert proxy.lost == 1
    assert shop.queue("stock@orders").stats().counters["rejected"] == 1


def test_a_mandatory_publish_without_a_subscriber_is_refused(face):
    app = face()
    with pytest.raises(Unroutable, match=r"order\.created"):
        app.publish("order.created", 1, mandatory=True)
    assert app.topics.stats().unroutable == 0


def test_an_unroutable_message_goes_to_the_alternate_queue(face):
    app = face()
    app.topics.set_alternate("unrouted")
    assert app.topics.match("order.created") == ["unrouted"]
    (queue,) = app.publish("order.created", 1)
    assert (queue, ready(app, "unrouted")) == ("unrouted", {"unrouted": 1})
    with pytest.raises(Unroutable):
        app.publish("order.created", 1, mandatory=True)
    app.topics.set_alternate(None)
    assert app.publish("order.created", 1) == {}
    assert app.topics.stats().alternate is None


def test_one_full_queue_refuses_for_all(shop):
    shop.queue("mailer@welcome").configure(max_length=1)
    shop.publish("order.created.eu", 1)
    with pytest.raises(QueueFull, match=r"'mailer@welcome' holds 1 of at most 1 messages; nothing was enqueued in any"):
        shop.publish("order.created.eu", 2)
    assert ready(shop, "audit@all", "mailer@welcome", "stock@orders") == {
        "audit@all": 1, "mailer@welcome": 1, "stock@orders": 1,
    }  # fmt: skip
    assert shop.queue("mailer@welcome").stats().counters["rejected"] == 1


def test_delay_order_and_priority_hold_in_every_queue(shop):
    shop.publish("stock.low", 1, delay=60)
    shop.publish("stock.low", 2, key="sku-1")
    shop.publish("stock.low", 3, key="sku-1", priority="high")
    for queue in ("audit@all", "stock@orders"):
        found = shop.queue(queue).stats()
        assert (found.delayed, found.ready, found.waiting) == (1, 2, 1)


def test_words_are_not_empty_and_a_binding_of_an_earlier_version_can_be_ended(face, url):
    app, commands = face(), Store(url)
    for odd in ("", "order..x"):
        with pytest.raises(InvalidName, match="words with dots in between, none of them empty"):
            app.subscribe("mailer@orders", odd)
        with pytest.raises(InvalidName, match="words with dots in between, none of them empty"):
            app.publish(odd, 1)
        commands.call(bind("bind", [f"mailer@orders {odd}"]))
        assert [one.pattern for one in app.topics.list()] == [odd]
        assert app.unsubscribe("mailer@orders", odd)
        assert app.topics.list() == []


def test_bad_input_is_refused_before_anything_is_sent(shop):
    with pytest.raises(InvalidName, match="allowed only in the pattern"):
        shop.publish("order.*", 1)
    with pytest.raises(InvalidName, match="stand for whole words"):
        shop.subscribe("q", "order*")
    with pytest.raises(InvalidName, match="queue name"):
        shop.subscribe("a b", "order.*")
    with pytest.raises(InvalidMessage, match="no pattern"):
        shop.subscribe("q")
    with pytest.raises(InvalidMessage, match="dedup_key"):
        shop.publish("order.created", NewMessage(1, dedup_key="x"))
    with pytest.raises(InvalidMessage, match="limit"):
        shop.publish("order.created", "x" * 1_200_000)


class Cuts:
    """Cuts the connection in front of the first answer of every publish."""

    def __init__(self):
        self.sure = False
        self.lost = 0

    def request(self, data):
        self._publishing = b"order.created.eu" in data
        return data

    def reply(self, data):
        if not self._publishing:
            return data
        self.sure = not self.sure
        self.lost += self.sure
        return None if self.sure else data


def test_a_lost_answer_publishes_once(shop, face, redis_server):
    cuts = Cuts()
    with Proxy(redis_server.port, cuts.request, cuts.reply) as proxy:
        producer = face(proxy.url)
        for number in range(20):
            producer.publish("order.created.eu", number)
    assert cuts.lost == 20
    assert ready(shop, "audit@all", "mailer@welcome", "stock@orders") == {
        "audit@all": 20, "mailer@welcome": 20, "stock@orders": 20,
    }  # fmt: skip


def test_no_answer_at_all_is_an_unknown_outcome_with_the_id(shop, face, redis_server):
    with Proxy(redis_server.port) as proxy:
        producer = face(proxy.url, send_timeout=0.3)
        producer.publish("stock.low", 0)
        proxy.reply = lambda data: None
        with pytest.raises(OutcomeUnknown) as caught:
            producer.publish("stock.low", NewMessage(1, id="mine"))
        assert caught.value.ids == ("mine",)


def test_a_foreign_field_is_no_binding(shop, app):
    app.store.call(command("HSET", TOPICS, "nonsense", "1"))
    assert len(shop.topics.list()) == 4
