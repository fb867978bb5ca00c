"""Large bodies lie apart from their elements: they move with no message, and leave with theirs."""

import pytest

from reliq import ops
from reliq.contract.values import INLINE_BODY_BYTES
from reliq.errors import PreparedClosed, QueueFull
from reliq.model.keys import QueueKeys
from reliq.model.message import Message, wrapped
from reliq.model.outgoing import NewMessage
from reliq.ops.producer import StoredBody, with_bodies
from reliq.protocol.batch import encoded
from reliq_monitor.reclaim import take_back
from tests.support.state import KEYS

BODY = b"b" * 5_000


@pytest.fixture
def queue(app):
    return app.queue("q")


@pytest.fixture
def stored(app):
    """The number of bodies that are apart."""
    return lambda keys=KEYS: app.store.call(ops.command("HLEN", keys.bodies))


def elements(app):
    return app.store.call(ops.whole_list(KEYS.messages))


@pytest.mark.parametrize(("size", "apart"), [(0, 0), (INLINE_BODY_BYTES, 0), (INLINE_BODY_BYTES + 1, 1), (300_000, 1)])
def test_only_a_large_body_is_apart(app, queue, stored, size, apart):
    queue.send(b"x" * size)
    assert stored() == apart
    with queue.consumer() as consumer:
        assert [message.body for message in consumer.claim()] == [b"x" * size]


def test_an_element_with_a_large_body_is_small_and_names_it(app, queue):
    identity = queue.send(BODY, headers={"a": "b"}, key="k", priority="high", ttl="1h")
    [element] = elements(app)
    message = Message.decode("q", element)
    assert len(element) < 250
    assert (message.id, message.size, message.body_is_read) == (identity, len(BODY), False)
    assert app.store.call(ops.stored_bodies(KEYS, [message.reference])) == [BODY]


def acked(queue):
    with queue.consumer() as consumer:
        consumer.ack(*consumer.claim(limit=10))


def acked_out_of_order(queue):
    with queue.consumer() as consumer:
        for message in reversed(consumer.claim(limit=10)):
            consumer.ack(message)


def cancelled(queue):
    for message in queue.delayed.list():
        queue.cancel(message.id)


def purged(queue):
    queue.purge()


def dead_and_purged(queue):
    with queue.consumer() as consumer:
        for message in consumer.claim(limit=10):
            consumer.dead(message, "rejected")
    queue.dead.purge(all=True)


@pytest.mark.parametrize("options", [{}, {"key": "k"}, {"priority": "high"}], ids=["plain", "keyed", "high"])
@pytest.mark.parametrize("leave", [acked_out_of_order, purged, dead_and_purged, acked])
def test_a_body_leaves_with_its_message(queue, stored, leave, options):
    for _ in range(3):
        queue.send(BODY, **options)
        queue.send(b"small", **options)
    assert stored() == 3
    for _ in range(6):  # one message of a key at a time
        leave(queue)
    assert stored() == 0
    assert queue.stats().ready == 0


@pytest.mark.parametrize("leave", [cancelled, purged])
def test_a_body_leaves_with_its_delayed_message(queue, stored, leave):
    queue.send(BODY, delay="1h")
    leave(queue)
    assert stored() == 0


def test_retry_release_death_and_redrive_leave_the_body_where_it_is(app, queue, stored):
    queue.send(BODY)
    reference = Message.decode("q", elements(app)[0]).reference
    with queue.consumer() as consumer:
        for settle in (consumer.retry, consumer.release):
            settle(*consumer.claim())
        consumer.dead(*consumer.claim(), "rejected")
    assert [letter.body for letter in queue.dead.list()] == [BODY]
    assert [letter.body_is_read for letter in queue.dead.list(bodies=False)] == [False]
    queue.dead.redrive()
    [again] = elements(app)
    assert Message.decode("q", again).reference == reference
    assert stored() == 1
    acked(queue)
    assert stored() == 0


def test_a_reclaimed_message_has_its_body(app, queue, stored):
    queue.send(BODY)
    consumer = queue.consumer()
    [held] = consumer.claim()
    app.store.run(take_back(KEYS, held.holder.consumer, known_dead=True))
    with queue.consumer() as other:
        [again] = other.claim()
        assert (again.body, again.redelivered) == (BODY, True)
        other.ack(again)
    assert stored() == 0


def test_a_refused_call_leaves_no_body(queue, stored):
    queue.configure(max_length=1)
    queue.send(BODY)
    for send in (lambda: queue.send(BODY), lambda: queue.send(BODY, key="k"), lambda: queue.prepare(BODY)):
        with pytest.raises(QueueFull):
            send()
    assert stored() == 1


def test_a_duplicate_leaves_no_body(queue, stored):
    first = queue.send(BODY, dedup_key="d")
    assert queue.send(BODY, dedup_key="d") == first
    assert stored() == 1


def test_each_queue_of_a_publish_has_the_body(app, stored):
    full = app.queue("full")
    for name in ("one", "two", "full"):
        app.subscribe(name, "a.*")
    app.publish("a.b", BODY)
    assert [stored(QueueKeys(name)) for name in ("one", "two", "full")] == [1, 1, 1]
    full.configure(max_length=1)
    with pytest.raises(QueueFull):
        app.publish("a.b", BODY)
    assert [stored(QueueKeys(name)) for name in ("one", "two", "full")] == [1, 1, 1]
    for name in ("one", "two"):
        with app.queue(name).consumer() as consumer:
            [message] = consumer.claim()
            assert message.body == BODY
            consumer.ack(message)
    assert [stored(QueueKeys(name)) for name in ("one", "two", "full")] == [0, 0, 1]


def test_the_body_of_a_prepared_message_stays_until_the_decision(queue, stored):
    committed, rolled_back = queue.prepare(BODY), queue.prepare(BODY)
    assert stored() == 2
    rolled_back.rollback()
    assert stored() == 1
    committed.commit()
    with queue.consumer() as consumer:
        assert [message.body for message in consumer.claim()] == [BODY]
    with pytest.raises(PreparedClosed):
        committed.rollback()


def sent(app, producer="p", sequence=1):
    """A whole call for one message, as it is sent to Redis."""
    bodies: list[StoredBody] = []
    push = ops.push(KEYS, [encoded(NewMessage(BODY), 0, bodies)], producer, sequence, 0, bodies=True)
    return with_bodies([KEYS], bodies, producer, sequence, push)


def test_a_call_that_arrives_again_after_its_message_was_handled_leaves_no_body(app, queue, stored):
    call = sent(app)
    app.store.call(call)
    acked(queue)
    app.store.call(call)
    assert (stored(), queue.stats().ready) == (0, 0)


def test_a_call_that_arrives_again_leaves_the_body_of_a_waiting_message(app, queue, stored):
    call = sent(app)
    app.store.call(call)
    app.store.call(call)
    assert (stored(), queue.stats().ready) == (1, 1)
    with queue.consumer() as consumer:
        assert [message.body for message in consumer.claim()] == [BODY]


def test_a_server_that_does_not_know_the_scripts_stores_and_enqueues_once(app, queue, stored):
    app.store.call(ops.command("SCRIPT", "FLUSH"))
    app.store.call(sent(app))
    assert (stored(), queue.stats().ready) == (1, 1)


def test_a_message_whose_body_was_deleted_becomes_a_dead_letter(app, queue):
    queue.send(BODY)
    app.store.call(ops.command("DEL", KEYS.bodies))
    with queue.consumer() as consumer:
        assert consumer.claim() == []
    [letter] = queue.dead.list()
    assert letter.reason == "decode"


def test_one_claim_brings_a_few_megabytes(queue):
    queue.send_many([b"x" * 1_000_000] * 24)
    with queue.consumer() as consumer:
        sizes = []
        while messages := consumer.claim(limit=100):
            sizes.append(sum(len(message.body) for message in messages))
            consumer.ack(*messages)
    assert len(sizes) > 2
    assert max(sizes) < 10_000_000
    assert sum(sizes) == 24_000_000


def test_more_large_messages_than_lua_passes_to_a_command_leave_with_one_ack(queue, stored):
    for _ in range(9):
        queue.send_many([b"x" * (INLINE_BODY_BYTES + 1)] * 1000)
    with queue.consumer() as consumer:
        held = [message for _ in range(9) for message in consumer.claim(1000)]
        consumer.ack(*held)
    assert stored() == 0
    assert queue.stats().counters["acked"] == 9000


def test_a_repeated_push_keeps_the_body_where_the_queue_has_a_limit_by_now(app, queue, stored):
    bodies: list[StoredBody] = []
    push = ops.push(KEYS, [encoded(NewMessage(BODY), 1, bodies)], "p", 1, 1, bodies=True)
    call = with_bodies([KEYS], bodies, "p", 1, push)
    assert app.store.call(call)[-1]
    queue.configure(max_length=10)
    assert app.store.call(call)[-1], "its answer was lost, so it comes again"
    assert (stored(), queue.stats().ready) == (1, 1)


def test_a_message_that_is_sent_again_has_a_body_of_its_own(queue, stored):
    message = NewMessage(BODY)
    for _ in range(2):
        queue.send_many([message, message])
    assert stored() == 4
    with queue.consumer() as consumer:
        for _ in range(4):
            (one,) = consumer.claim()
            assert one.body == BODY
            consumer.ack(one)


def test_a_duplicate_that_is_the_same_object_leaves_the_first_its_body(queue, stored):
    message = NewMessage(BODY, dedup_key="a")
    queue.send_many([message])
    queue.send_many([message])
    assert message.duplicate
    assert stored() == 1
    with queue.consumer() as consumer:
        assert [one.body for one in consumer.claim(10)] == [BODY]


def test_a_message_that_is_published_again_has_a_body_of_its_own(app, queue, stored):
    app.subscribe("q", "a")
    message = NewMessage(BODY)
    app.publish("a", message)
    app.publish("a", message)
    assert stored() == 2


def test_the_body_of_a_message_that_an_earlier_version_did_not_decode_leaves_with_its_letter(app, queue, stored):
    """That version made a dead letter of the element as it was."""
    queue.send(BODY)
    [element] = elements(app)
    app.store.call(ops.command("LPOP", KEYS.messages))
    identity, letter = wrapped(element)
    app.store.call([ops.command("ZADD", KEYS.dead, 1, letter), ops.command("HSET", KEYS.index, identity, 1)])
    assert stored() == 1
    assert queue.dead.purge(all=True) == 1
    assert stored() == 0
