"""Each Celery task has an end in the result backend: also one that expires, is rejected or is a dead letter."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import celery
import kombu
import pytest
from billiard.einfo import ExceptionInfo
from celery.exceptions import ChordError, InvalidTaskError, Reject, TaskRevokedError, WorkerLostError

import reliq
from reliq.contrib.celery import Request
from reliq.contrib.celery_ends import EndStorer
from reliq.model.keys import QueueKeys
from tests.integration.celery.workers import APP, send, signature, working
from tests.support.workers import eventually

#: Celery stores results in Redis with a command that redis-py calls deprecated.
pytestmark = [pytest.mark.celery, pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")]


@pytest.fixture
def storers(client: Any, broker: str) -> Iterator[list[EndStorer]]:
    """What two workers have that store ends, without their workers."""
    with client.connection_for_read() as connection, kombu.Consumer(connection, [kombu.Queue("celery")]) as consumer:
        worker = SimpleNamespace(app=client, task_consumer=consumer)
        consumer.cancel()
        yield [EndStorer(worker), EndStorer(worker)]


def expired(client: Any, connection: kombu.Connection, **options: Any) -> Any:
    """Send a task, of which reliq makes an expired dead letter."""
    result = send(client, "add", 1, 1, expiration=0.001, **options)
    queue = connection.SimpleQueue("celery")
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.2)
    queue.close()
    return result


# --- expires ---


def test_tasks_that_expire_in_redis_are_revoked_by_the_worker(app: reliq.Reliq, broker: str, client: Any) -> None:
    waiting = send(client, "add", 1, 1, expires=0.01)
    beyond = send(client, "add", 1, 1, expires=0.01, countdown=0.5)
    ignored = send(client, "add", 1, 1, expires=0.01, ignore_result=True)
    header = [signature(client, "add", 1, 1), signature(client, "add", 2, 2).set(expires=0.01)]
    chord = celery.chord(header, app=client)(signature(client, "total"))
    with working(broker) as worker:
        for result in (waiting, beyond):
            with pytest.raises(TaskRevokedError, match="expired"):
                result.get(timeout=20)
            assert result.state == "REVOKED"
        with pytest.raises(ChordError, match="TaskRevokedError"):
            chord.get(timeout=20, follow_parents=False)
        worker.until_logged(f"Discarding revoked task: {APP}.add[{ignored.id}]")
        assert ignored.state == "PENDING"
        eventually(lambda: app.queue("celery").stats().counters.get("acked") == 5)
    stats = app.queue("celery").stats()
    assert (stats.ready, stats.processing, stats.delayed, stats.dead) == (0, 0, 0, 0)


def test_a_retry_that_expires_is_revoked(app: reliq.Reliq, broker: str, client: Any) -> None:
    with working(broker, "-c", "1"):
        assert send(client, "stubborn", expires=60).get(timeout=20) == 2
        with pytest.raises(TaskRevokedError, match="expired"):
            send(client, "late", expires=0.9).get(timeout=20)
        assert app.queue("celery").stats().dead == 0


# --- poison tasks ---


def test_a_poison_task_ends_its_chord_with_a_failure(app: reliq.Reliq, broker: str, client: Any) -> None:
    app.queue("celery").configure(max_deliveries=2)
    header = [signature(client, "add", 1, 1), signature(client, "die")]
    with working(broker):
        chord = celery.chord(header, app=client)(signature(client, "total"))
        with pytest.raises(ChordError, match="WorkerLostError"):
            chord.get(timeout=30, follow_parents=False)
        (_, poison) = chord.parent.results
        with pytest.raises(WorkerLostError, match=r"dead letter \S+ of queue celery"):
            poison.get(timeout=20)
        (letter,) = app.queue("celery").dead.list()
        assert (letter.reason, letter.headers["task_id"]) == ("max_deliveries", poison.id)


@pytest.mark.parametrize(
    ("pool", "name", "text"),
    [("threads", "leave", "gone"), ("solo", "leave", "gone"), ("threads", "exhaust", "nothing")],
)
def test_a_task_that_ends_its_thread_is_tried_again_and_a_dead_letter_in_the_end(
    app: reliq.Reliq, broker: str, client: Any, pool: str, name: str, text: str
) -> None:
    app.queue("celery").configure(max_deliveries=2)
    result = send(client, name)
    with working(broker, "-P", pool, "-c", "1", "--without-gossip", "--without-mingle"):
        eventually(lambda: app.queue("celery").stats().dead == 1)
        with pytest.raises((WorkerLostError, MemoryError)):
            result.get(timeout=20)
        assert send(client, "add", 1, 2).get(timeout=20) == 3
    (letter,) = app.queue("celery").dead.list()
    assert (letter.reason, letter.failures) == ("max_deliveries", 2)
    assert text in letter.errors[-1].text


def received(client: Any, name: str) -> Request:
    """Send a task and receive it, as a worker does."""
    send(client, name)
    message = kombu.Queue("celery")(client.connection_for_read().default_channel).get()
    settling = {"on_ack": message.ack_log_error, "on_reject": message.reject_log_error}
    return Request(message, app=client, task=client.tasks[f"{APP}.{name}"], **settling)


def failed(error: Exception) -> ExceptionInfo:
    try:
        raise error  # noqa: TRY301  only then has it a traceback
    except Exception:
        return ExceptionInfo()


def test_a_retry_that_could_not_be_sent_runs_again(app: reliq.Reliq, client: Any) -> None:
    unsent = Reject(kombu.exceptions.OperationalError("Redis cannot be reached"), requeue=False)
    received(client, "late").on_failure(failed(unsent), return_ok=True)
    stats = app.queue("celery").stats()
    assert (stats.ready, stats.processing, stats.dead) == (1, 0, 0)
    assert stats.counters.get("retried") == 1


def test_a_message_is_settled_although_its_result_cannot_be_stored(
    app: reliq.Reliq, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise ConnectionError("the result backend is away")

    monkeypatch.setattr(client.backend, "mark_as_failure", away)
    with pytest.raises(ConnectionError):
        received(client, "refuse").on_failure(failed(Reject("never", requeue=False)), return_ok=True)
    with pytest.raises(ConnectionError):
        received(client, "overrun").on_timeout(soft=False, timeout=1)
    stats = app.queue("celery").stats()
    assert (stats.ready, stats.processing, stats.dead) == (1, 0, 1)


def test_a_task_that_kills_its_worker_ends_with_a_failure_stored_by_the_next_worker(
    app: reliq.Reliq, broker: str, client: Any
) -> None:
    """No Celery application has buried it: the worker's guard did."""
    app.queue("celery").configure(max_deliveries=1)
    result = send(client, "die")
    with working(broker, "-P", "solo", "--without-gossip", "--without-mingle"):
        eventually(lambda: app.queue("celery").stats().dead == 1)
    assert result.state == "PENDING"
    with working(broker, "-c", "1"), pytest.raises(WorkerLostError):
        result.get(timeout=20)


def test_tasks_whose_failure_celery_stores_end_their_chords(app: reliq.Reliq, broker: str, client: Any) -> None:
    app.queue("celery").configure(max_deliveries=1)
    wanted = {"die_once": "WorkerLostError", "overrun": "TimeLimitExceeded", "refuse": "requeue=False: never"}
    with working(broker, "-c", "3"):
        chords = {
            name: celery.chord([signature(client, name)], app=client)(signature(client, "total")) for name in wanted
        }
        for name, chord in chords.items():
            with pytest.raises(ChordError, match=wanted[name]):
                chord.get(timeout=30, follow_parents=False)
            assert chord.parent.results[0].state == "FAILURE"
        letters = eventually(lambda: len(found := list(app.queue("celery").dead.list())) == 3 and found)
    assert {(one.headers["task"].rpartition(".")[2], one.reason, one.errors[-1].error_class) for one in letters} == {
        ("die_once", "rejected", "WorkerLostError"),
        ("overrun", "max_deliveries", "TimeLimitExceeded"),
        ("refuse", "rejected", "Reject"),
    }


def test_a_task_that_the_worker_cannot_read_has_a_failure(app: reliq.Reliq, broker: str, client: Any) -> None:
    result = send(client, "add", 1, 1, serializer="pickle")  # which a worker does not accept by default
    with working(broker, "-c", "1"), pytest.raises(InvalidTaskError, match="could not read"):
        result.get(timeout=20)
    (letter,) = app.queue("celery").dead.list()
    assert (letter.reason, letter.errors[-1].error_class) == ("rejected", "Reject")


def test_what_a_worker_cannot_decode_is_a_dead_letter(app: reliq.Reliq, broker: str, client: Any) -> None:
    """Celery logs such a message and acks it."""
    headers = {"task": f"{APP}.add", "id": "of-protocol-2", "lang": "py"}
    with client.producer_pool.acquire() as producer:
        for given in ({}, headers):
            producer.publish(
                b"{broken", routing_key="celery", content_type="application/json", content_encoding="utf-8",
                headers=given,
            )  # fmt: skip
        producer.publish(
            b"no gzip", routing_key="celery", content_type="application/json", content_encoding="utf-8",
            headers={"compression": "application/x-gzip"},
        )  # fmt: skip
    foreign = [app.queue("celery").send(body) for body in ("no json", b"\xff")]
    with working(broker, "-c", "1"):
        letters = eventually(lambda: len(found := list(app.queue("celery").dead.list())) == 5 and found)
        with pytest.raises(InvalidTaskError, match="could not read"):
            client.AsyncResult("of-protocol-2").get(timeout=20)
    assert {(one.reason, one.errors[-1].error_class) for one in letters} <= {
        ("rejected", "DecodeError"), ("rejected", "ContentDisallowed"), ("rejected", "Reject"), ("rejected", "error"),
    }  # fmt: skip
    assert set(foreign) <= {one.id for one in letters}


# --- the reading of dead letters ---


def test_an_expired_dead_letter_is_a_revoked_task(
    client: Any, connection: kombu.Connection, storers: list[EndStorer]
) -> None:
    """As one that a producer of an earlier version has sent, or one with kombu's `expiration`."""
    result = expired(client, connection)
    storers[0].look()
    assert result.state == "REVOKED"


def test_one_of_several_workers_stores_an_end_and_does_so_once(
    client: Any, connection: kombu.Connection, storers: list[EndStorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[str] = []
    monkeypatch.setattr(client.backend, "mark_as_revoked", lambda identity, *_, **__: stored.append(identity))
    first, second = expired(client, connection), expired(client, connection, ignore_result=True)
    for storer in [*storers, *storers]:
        storer.look()
    assert stored == [first.id, second.id]


def test_an_end_that_could_not_be_stored_is_stored_at_the_next_look(
    client: Any, connection: kombu.Connection, storers: list[EndStorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: Any, **__: Any) -> None:
        raise ConnectionError("the result backend is away")

    result = expired(client, connection)
    with monkeypatch.context() as outage:
        outage.setattr(client.backend, "mark_as_revoked", unavailable)
        storers[0].look()
    assert result.state == "PENDING"
    storers[0].look()
    assert result.state == "REVOKED"


def test_a_queue_that_cannot_be_read_does_not_hold_up_the_ends_of_others(
    client: Any, storers: list[EndStorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    storer, looked = storers[0], []

    def look_at(store: object, keys: QueueKeys, *_: Any) -> None:
        looked.append(keys.queue)
        if keys.queue == "away":
            raise reliq.RedisUnavailable("its node is away")

    monkeypatch.setattr(storer, "look_at", look_at)
    queues, channel = [kombu.Queue("away"), kombu.Queue("celery")], storer._consumer.task_consumer.channel
    storer._consumer.task_consumer = SimpleNamespace(channel=channel, queues=queues)
    with pytest.raises(reliq.RedisUnavailable):
        storer.look()
    assert looked == ["away", "celery"]


def test_a_result_is_not_replaced_by_the_end_of_a_dead_letter(
    client: Any, connection: kombu.Connection, storers: list[EndStorer]
) -> None:
    result = expired(client, connection, task_id="known")
    client.backend.store_result("known", 2, "SUCCESS")
    storers[0].look()
    assert (result.state, result.result) == ("SUCCESS", 2)


def test_dead_letters_of_other_messages_are_left_alone(
    app: reliq.Reliq, connection: kombu.Connection, storers: list[EndStorer]
) -> None:
    connection.Producer().publish("no task", routing_key="celery", expiration=0.001)
    queue = connection.SimpleQueue("celery")
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.2)
    queue.close()
    storers[0].look()
    (letter,) = app.queue("celery").dead.list()
    assert letter.reason == "expired"


# --- Reject ---


def test_a_message_that_is_rejected_to_be_requeued_is_redelivered_and_no_failure(
    app: reliq.Reliq, broker: str, client: Any, tmp_path: Path
) -> None:
    path = tmp_path / "deliveries"
    with working(broker, "-c", "1"):
        assert send(client, "put_back", str(path), 6).get(timeout=20) == "done"
    assert path.read_text().split() == ["False"] + ["True"] * 6
    stats = app.queue("celery").stats()
    assert (stats.dead, stats.counters.get("retried", 0), stats.counters.get("released")) == (0, 0, 6)
