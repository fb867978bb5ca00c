"""Queues, exchanges and addresses of kombu: their names in reliq, their arguments, and what is refused."""

import re
import ssl
from types import SimpleNamespace
from typing import Any

import celery
import kombu
import pytest
from kombu.exceptions import ChannelError

import reliq
import reliq.contrib.kombu
from reliq import ops
from reliq.contrib.celery import _prepare_worker, configure
from reliq.contrib.kombu.names import Names
from reliq.contrib.kombu.options import broker_url
from reliq.features.topics import duty
from reliq.features.topics import ops as topics
from reliq.features.topics.routing import Routes, check_routing_key
from reliq.model.keys import check_name, instance_of
from tests.integration.celery.kombu_support import Received, publish
from tests.support.workers import eventually

NAMES = Names()


@pytest.mark.parametrize(
    ("kind", "bound", "sent", "reached"),
    [
        ("direct", "eu.orders", "eu.orders", True),
        ("direct", "eu.*", "eu.orders", False),
        ("direct", "eu.*", "eu.*", True),
        ("topic", "eu.*", "eu.orders", True),
        ("topic", "eu.*", "eu.orders.new", False),
        ("topic", "eu.#", "eu", True),
        ("topic", "a b.#", "a b.c%d", True),
        ("fanout", "", "anything.at all", True),
        ("fanout", "x", "", True),
        ("direct", "", "", True),
        ("direct", "", "x", False),
        ("topic", "eu.*.new", "eu..new", True),
        ("topic", "eu.#", "eu.", True),
        ("direct", "eu..new", "eu..new", True),
    ],
)
def test_exchanges_route_as_in_amqp(kind: str, bound: str, sent: str, reached: bool) -> None:
    routes = Routes([("queue", NAMES.pattern("my.exchange", kind, bound)), ("other", NAMES.pattern("my", kind, bound))])
    assert routes.match(check_routing_key(NAMES.routing_key("my.exchange", sent))) == (("queue",) if reached else ())


def test_names_that_reliq_does_not_allow_get_a_legible_one() -> None:
    assert NAMES.lasting_queue("celery@host.celery.pidbox") == "celery@host.celery.pidbox"
    assert NAMES.lasting_queue("my:queue") != NAMES.lasting_queue("my queue")
    for name in ("my:queue", "-x", "ü" * 300, "a@broadcast.c01234567890123456789", ""):
        assert check_name(NAMES.lasting_queue(name))
        assert instance_of(NAMES.passing_queue(name))


def test_fanout_reaches_every_queue_also_one_without_a_consumer(
    app: reliq.Reliq, broker: str, connection: kombu.Connection
) -> None:
    news = kombu.Exchange("news", type="fanout")
    for name in ("mail", "sms"):
        kombu.Queue(name, exchange=news)(connection.default_channel).declare()
    with kombu.Connection(broker) as other:  # its process knows nothing of the queues
        kombu.Producer(other, exchange=news).publish("hello")
    assert {app.queue(name).stats().ready for name in ("mail", "sms")} == {1}
    kombu.Queue("sms", exchange=news)(connection.default_channel).delete()
    kombu.Producer(connection, exchange=news).publish("again")
    assert (app.queue("mail").stats().ready, "sms" in app.queues()) == (2, False)


def test_a_queue_to_be_deleted_goes_with_its_consumer(app: reliq.Reliq, broker: str) -> None:
    reply = kombu.Queue("reply", auto_delete=True)
    name = NAMES.passing_queue("reply")
    with kombu.Connection(broker) as connection, kombu.Connection(broker) as watching:
        consumer = kombu.Consumer(connection, [reply], callbacks=[lambda body, message: message.ack()])
        with consumer, kombu.Consumer(watching, [kombu.Queue("lasting")]):
            kombu.Producer(watching).publish("to its name", routing_key="reply")
            connection.drain_events(timeout=5)
            consumer.close()
            connection.close()
            eventually(lambda: name not in app.queues(of_broadcasts=True), what="the queue is dropped")


def test_a_queue_to_be_deleted_waits_for_its_first_consumer(
    app: reliq.Reliq, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duty, "_GRACE", 0.3)
    reply, late = kombu.Queue("reply", auto_delete=True), kombu.Queue("late", auto_delete=True, expires=1)
    with kombu.Connection(broker) as connection, kombu.Connection(broker) as watching:
        reply(connection.default_channel).declare()
        late(connection.default_channel).declare()
        with kombu.Consumer(watching, [kombu.Queue("lasting")]):  # runs a monitor
            publish(watching, "lasting", "a reply that nobody reads yet")
            kombu.Producer(watching).publish("result", routing_key="reply")
            eventually(
                lambda: NAMES.passing_queue("late") not in app.queues(of_broadcasts=True), what="its time is over"
            )
            received = Received(connection)
            received.consumer.add_queue(reply)
            assert received.drain(1) == ["result"]
            eventually(
                lambda: NAMES.passing_queue("reply") not in app.queues(of_broadcasts=True), what="it goes with it"
            )
        late(connection.default_channel).delete()  # in what this process knows


def test_a_passing_reply_to_a_client_that_is_gone_makes_no_queue(
    app: reliq.Reliq, connection: kombu.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = kombu.Producer(connection)
    producer.publish("for nobody", routing_key="gone", delivery_mode="transient")
    assert app.queues() == []
    monkeypatch.setattr("reliq.contrib.kombu.broker._MOST_BEHIND", 1)
    slow = kombu.Queue("slow", auto_delete=True)(connection.default_channel)
    slow.declare()
    for _ in range(2):  # a client that reads nothing holds up no worker
        producer.publish("result", routing_key="slow", delivery_mode="transient")
    assert slow.queue_declare(passive=True).message_count == 1
    slow.delete()


def test_a_transient_task_makes_its_queue(app: reliq.Reliq, connection: kombu.Connection) -> None:
    task = {"task": "shop.ship", "id": "1"}
    connection.Producer().publish("ship", routing_key="orders", headers=task, delivery_mode="transient")
    assert app.queue("orders").stats().ready == 1


def test_a_passing_message_enters_a_queue_that_redis_has_lost_since_it_was_declared(
    app: reliq.Reliq, connection: kombu.Connection
) -> None:
    producer = kombu.Producer(connection)
    declared = {"routing_key": "tasks", "declare": [kombu.Queue("tasks")], "delivery_mode": "transient"}
    producer.publish("before", **declared)
    app.store.call(ops.command("FLUSHDB"))
    producer.publish("after", **declared)  # kombu does not declare it again
    assert app.queue("tasks").stats().ready == 1


def test_applications_with_prefixes_of_their_own_share_a_redis(app: reliq.Reliq, broker: str) -> None:
    news = kombu.Exchange("news", type="fanout")

    def connected(prefix: str) -> Any:
        connection = kombu.Connection(broker, transport_options={"global_keyprefix": prefix})
        kombu.Queue("all", news)(connection.default_channel).declare()
        return connection

    with connected("shop.") as shop, connected("mail:") as mail:
        publish(shop, "celery", "of shop")
        kombu.Producer(shop, news).publish("news of shop")
        assert kombu.Queue("celery")(mail.default_channel).get() is None
        assert kombu.Queue("all")(mail.default_channel).get() is None
        assert Received(shop, "celery", "all").drain(2) != []
    assert {"shop.celery", "shop.all", NAMES.lasting_queue("mail:all")} <= set(app.queues())


def test_one_url_one_broker_and_no_password_is_shown(broker: str) -> None:
    with_login = broker.replace("redis://", "redis://user:se%2Fcret@")
    connection = kombu.Connection(with_login)
    assert "cret" not in connection.as_uri()
    assert connection.as_uri(include_password=True) == with_login
    one, two = kombu.Connection(broker), kombu.Connection(broker)
    assert one.transport.broker is two.transport.broker


def test_a_queue_with_a_length_refuses_what_is_too_much(app: reliq.Reliq, connection: kombu.Connection) -> None:
    arguments = {"x-overflow": "reject-publish"}
    short = kombu.Queue("short", max_length=2, queue_arguments=arguments)(connection.default_channel)
    short.declare()
    publish(connection, "short", 1, 2)
    with pytest.raises(reliq.errors.QueueFull):
        publish(connection, "short", 3)
    app.queue("short").configure(max_length=3)
    short.declare()  # again, by another worker: the operator's limit stays
    publish(connection, "short", 3)


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        ({"message_ttl": 5.0}, "x-message-ttl.*expires="),
        ({"max_length": 2}, "x-max-length.*reject-publish"),
        ({"max_length_bytes": 2}, "x-max-length-bytes.*max_bytes"),
        ({"expires": 5.0}, "x-expires.*exclusive"),
        ({"queue_arguments": {"x-dead-letter-exchange": "dead"}}, "x-dead-letter-exchange.*reliq dead"),
        ({"queue_arguments": {"x-single-active-consumer": True}}, "x-single-active-consumer.*concurrency"),
    ],
)
def test_arguments_of_queues_that_reliq_does_not_know_are_refused(
    connection: kombu.Connection, options: dict[str, Any], instead: str
) -> None:
    with pytest.raises(reliq.errors.InvalidSetting, match=instead):
        kombu.Queue("orders", **options)(connection.default_channel).declare()
    kombu.Queue("reply", auto_delete=True, **options)(connection.default_channel).declare()


def test_an_exchange_that_reliq_does_not_know_is_refused(connection: kombu.Connection) -> None:
    with pytest.raises(reliq.errors.InvalidSetting, match="exchange 'h' has the type 'headers'"):
        kombu.Queue("orders", kombu.Exchange("h", type="headers"))(connection.default_channel).declare()


@pytest.mark.parametrize(("exchange", "bound"), [("amq.topic", "eu.*"), ("amq.fanout", ""), ("amq.direct", "eu.new")])
def test_exchanges_that_every_broker_has_route_by_their_type(
    connection: kombu.Connection, exchange: str, bound: str
) -> None:
    queue = kombu.Queue("orders", kombu.Exchange(exchange, exchange.removeprefix("amq.")), bound)
    queue(connection.default_channel).declare()
    connection.Producer().publish("new", exchange=exchange, routing_key="eu.new")
    assert Received(connection, "orders").drain(1) == ["new"]


@pytest.mark.parametrize("options", [{}, {"lease": "30s"}])
def test_the_type_of_an_exchange_is_known_to_all_connections_of_the_process(
    broker: str, connection: kombu.Connection, options: dict[str, Any]
) -> None:
    kombu.Exchange("events", "topic")(connection.default_channel).declare()
    with kombu.Connection(broker, transport_options=options) as other:
        kombu.Exchange("events", "topic", passive=True)(other.default_channel).declare()
        queue = kombu.Queue("orders", kombu.Exchange("events", "topic", no_declare=True), "eu.*")
        queue(other.default_channel).declare()
    connection.Producer().publish("new", exchange="events", routing_key="eu.new")
    assert Received(connection, "orders").drain(1) == ["new"]


def test_exchanges_of_another_prefix_or_database_are_others(connection: kombu.Connection, broker: str) -> None:
    kombu.Exchange("of shop", "topic")(connection.default_channel).declare()
    mail = kombu.Connection(broker, transport_options={"global_keyprefix": "mail."})
    for one in (mail, kombu.Connection(broker.removesuffix("/0") + "/7")):
        with one, pytest.raises(ChannelError, match="NOT_FOUND - exchange 'of shop' is unknown to this process"):
            kombu.Exchange("of shop", "topic", passive=True)(one.default_channel).declare()


def test_an_exchange_is_deleted_with_all_of_its_bindings_whoever_made_them(
    app: reliq.Reliq, broker: str, connection: kombu.Connection
) -> None:
    for name in ("news", "news.old"):
        for queue, key in (("mail", "eu.#"), ("sms", "")):
            kombu.Queue(queue, kombu.Exchange(name, "topic"), key)(connection.default_channel).declare()
    with kombu.Connection(broker, transport_options={"lease": "30s"}) as other:
        kombu.Exchange("news")(other.default_channel).delete(if_unused=True)
        assert len(app.store.call(topics.bound())) == 4
        kombu.Exchange("news")(other.default_channel).delete()
        assert {one.split()[1].split(".")[1] for one in app.store.call(topics.bound())} == {"news%2Eold"}
        with pytest.raises(ChannelError, match="'news' is unknown to this process"):
            kombu.Exchange("news", passive=True)(connection.default_channel).declare()
        other.Producer().publish("new", exchange="news", routing_key="eu.new")
    assert {app.queue(name).stats().ready for name in ("mail", "sms")} == {0}


def test_a_queue_is_not_bound_to_an_exchange_of_unknown_type(connection: kombu.Connection) -> None:
    exchange = kombu.Exchange("of another program", "topic", no_declare=True)
    with pytest.raises(ChannelError, match=r"NOT_FOUND - .*'of another program'.* declare"):
        kombu.Queue("orders", exchange, "eu.*")(connection.default_channel).declare()


def test_options_that_make_no_sense_are_refused(broker: str) -> None:
    with pytest.raises(reliq.errors.InvalidSetting, match="priority_order is 'up'"):
        kombu.Connection(broker, transport_options={"priority_order": "up"}).connect()
    with pytest.raises(reliq.errors.InvalidSetting, match=r"lease is 0\.1"):
        kombu.Connection(broker, transport_options={"lease": 0.1}).connect()


def test_the_second_url_is_used_where_the_first_is_dead(app: reliq.Reliq, broker: str) -> None:
    dead = "reliq+redis://127.0.0.1:1/0"
    with kombu.Connection(f"{dead};{broker}") as connection:
        connection.ensure_connection(max_retries=3, interval_start=0, interval_step=0)
        publish(connection, "orders", 1)
    assert app.queue("orders").stats().ready == 1


def test_tls_options_of_celery_become_those_of_the_url() -> None:
    options = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": "/etc/ca.pem", "ssl_check_hostname": False}
    secured = kombu.Connection("reliq+redis://:pw@host/3", ssl=options)
    url = "rediss://:pw@host/3?ssl_cert_reqs=required&ssl_ca_certs=%2Fetc%2Fca.pem&ssl_check_hostname=False"
    assert broker_url(secured) == url
    unset = kombu.Connection("reliq+rediss://host/3", ssl={"ssl_cert_reqs": None, "ssl_ca_certs": None})
    assert broker_url(unset) == "rediss://host/3?ssl_cert_reqs=None"  # redis-py takes it for "none"
    assert broker_url(kombu.Connection("reliq+redis+sentinel://a:1,b:2/main/0", ssl=True)).startswith("rediss+sentinel")
    assert broker_url(kombu.Connection("redis://host/1", transport="reliq.contrib.kombu:Transport")) == "redis://host/1"


def test_a_consumer_of_a_queue_with_partitions_is_refused_and_sends_go_on(
    app: reliq.Reliq, connection: kombu.Connection
) -> None:
    app.queue("orders").configure(partitions=4)
    publish(connection, "orders", *range(8))
    assert app.queue("orders").stats().ready == 8
    with pytest.raises(ChannelError, match="'orders' has 4 partitions, and kombu takes from one only"):
        Received(connection, "orders").drain(1)
    with pytest.raises(ChannelError, match="'orders' has 4 partitions, and kombu takes from one only"):
        kombu.Queue("orders")(connection.default_channel).get()
    assert app.queue("orders").stats().ready == 8
    kombu.Queue("orders")(connection.default_channel).delete()
    assert [one for one in app.store.call(ops.queue_names()) if "orders" in one] == []


@pytest.mark.parametrize("url", ["redis://:pw@localhost", "rediss+sentinel://:pw@localhost/main/0", "amqp://a:pw@h"])
def test_celery_is_not_configured_for_a_transport_of_its_own(url: str) -> None:
    """Else Celery would use its own transport, and nobody would notice until a worker is killed."""
    app = celery.Celery()
    scheme = url.partition("://")[0].replace("amqp", "redis")
    with pytest.raises(reliq.InvalidSetting, match=re.escape(f": write reliq+{scheme}://")) as caught:
        configure(app, url)
    assert "pw" not in str(caught.value)
    app.conf.broker_transport = "reliq.contrib.kombu:Transport"
    configure(app, url)


def test_options_that_reliq_does_not_know_are_refused_or_named(caplog: pytest.LogCaptureFixture) -> None:
    app = celery.Celery()
    with pytest.raises(reliq.InvalidSetting, match=r"configure\(\) does not know leese: the options .* are lease, "):
        configure(app, "reliq+redis://localhost", leese="30s")
    configure(app, "reliq+redis://localhost", lease="30s", priority_steps=[0, 3])
    app.conf.broker_transport_options["visibility_timeout"] = 3600
    _prepare_worker(SimpleNamespace(app=app))
    assert caplog.messages == ["broker_transport_options_ignored names=visibility_timeout"]
