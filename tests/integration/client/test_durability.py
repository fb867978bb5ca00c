"""A send that asks for disks or replicas answers only when they have it, and never OK when that is not sure."""

import asyncio
import contextlib
import shutil

import pytest
import redis

import reliq
from reliq import NewMessage, aio, embedded
from reliq.contract import values
from reliq.embedded import EmbeddedRedis
from reliq.errors import DurabilityUnavailable, InvalidSetting, OutcomeUnknown
from tests.support.proxy import Proxy
from tests.support.sync_adapter import Blocking
from tests.support.workers import eventually


@pytest.fixture(params=["sync", "asyncio"])
def connect(request):
    """Makes applications of either face, closed at the end."""
    made = []
    with asyncio.Runner() as runner:

        def make(url: str):
            made.append(reliq.Reliq(url) if request.param == "sync" else Blocking(aio.Reliq(url), runner))
            return made[-1]

        yield make
        for one in made:
            one.close()


@contextlib.contextmanager
def opened(url: str, **options):
    app = reliq.Reliq(url, **options)
    yield app
    app.close()


@pytest.fixture(scope="module")
def pair():
    with (
        EmbeddedRedis(settings=["--repl-diskless-sync-delay", "0"]) as master,
        EmbeddedRedis(settings=["--replicaof", "127.0.0.1", str(master.port)]) as replica,
    ):
        yield master, replica


@pytest.fixture
def master(pair):
    """A master with a connected replica, both empty."""
    master, _ = pair
    with redis.Redis(port=master.port) as client:
        client.flushall()
        eventually(lambda: client.info("replication").get("slave0", {}).get("state") == "online")
    return master


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(values, "DURABLE_WITHIN", 0.1)


def test_a_send_with_replicas_is_on_the_replica_when_it_answers(pair, master, connect):
    queue = connect(master.url).queue("q")
    with redis.Redis(port=pair[1].port) as replica:
        for number in range(1, 51):
            queue.send({"n": number}, durability="replicas=1")
            assert replica.llen("reliq:{q}:messages") == number


def test_a_batch_of_many_round_trips_is_confirmed_batch_by_batch(pair, master, connect):
    ids = connect(master.url).queue("q").send_many(["x"] * 2500, durability="replicas=1")
    with redis.Redis(port=pair[1].port) as replica:
        assert replica.llen("reliq:{q}:messages") == len(set(ids)) == 2500
        assert replica.hget("reliq:{q}:counters", "confirms") == b"3"


def test_more_replicas_than_there_are_is_unknown_and_names_the_ids(master, connect, impatient):
    queue = connect(master.url).queue("q")
    with pytest.raises(OutcomeUnknown, match="replicas=2 was not reached") as error:
        queue.send("x", id="mine", durability="replicas=2")
    assert error.value.ids == ("mine",)
    assert queue.stats().ready == 1


@pytest.mark.parametrize("options", [{}, {"key": "a"}, {"priority": "high"}])
def test_an_unconfirmed_duplicate_names_the_first_message(app, impatient, options):
    queue, ids = app.queue("q"), []
    first = queue.send("x", dedup_key="k", **options)
    for send in (queue.send, lambda message, **sure: queue.send_many([message, NewMessage("y")], **sure)):
        message = NewMessage("x", dedup_key="k", **options)
        with pytest.raises(OutcomeUnknown, match="not reached") as error:
            send(message, durability="replicas=1")
        ids.append(error.value.ids)
        assert (message.duplicate, message.first_id) == (True, first)
    assert [one[0] for one in ids] == [first, first]
    assert [len(one) for one in ids] == [1, 2]


def test_memory_asks_nobody(app):
    app.queue("q").send("x", durability="memory")
    assert "confirms" not in app.queue("q").stats().counters


def test_the_queue_has_a_default_and_a_send_may_differ(app, connect, impatient):
    assert app.queue("q").configure(durability="replicas=1").durability == "replicas=1"
    queue = connect(app.url).queue("q")
    with pytest.raises(OutcomeUnknown):
        queue.send("x")
    queue.send("y", durability="memory")
    assert app.queue("q").configure(durability=None).durability == "memory"
    connect(app.url).queue("q").send("z")


@pytest.mark.parametrize(
    "value", ["disk", "replicas", "replicas=0", "replicas=-1", "replicas=x", "replicas=101", "", 1]
)
def test_an_unknown_durability_is_refused_before_anything_is_sent(app, value):
    with pytest.raises(InvalidSetting, match="durability is"):
        app.queue("q").send("x", durability=value)
    with pytest.raises(InvalidSetting, match="durability is"):
        app.queue("q").configure(durability=value)
    assert app.queue("q").stats().ready == 0


def test_a_repeat_on_another_connection_does_not_pass_for_durable(redis_server, url, connect, impatient):
    """There a WAIT of its own would be satisfied at once: that connection has written nothing."""
    cuts = iter([True])

    def reply(data: bytes) -> bytes | None:
        return None if client.llen("reliq:{q}:messages") and next(cuts, False) else data

    with redis.Redis(port=redis_server.port) as client, Proxy(redis_server.port, reply=reply) as proxy:
        queue = connect(proxy.url).queue("q")
        with pytest.raises(OutcomeUnknown, match="not reached"):
            queue.send("x", durability="replicas=1")
    assert next(cuts, None) is None
    assert connect(url).queue("q").stats().ready == 1


def test_a_server_that_lost_the_write_does_not_pass_for_durable(pair, master):
    """As after a failover to a replica that had not received it: it answers WAIT, but it does not know the call."""

    def forgets(data: bytes) -> bytes:
        if b"WAIT" in data:
            with redis.Redis(port=master.port) as client:
                client.delete("reliq:{q}:producers")
        return data

    with (
        Proxy(master.port, request=forgets) as proxy,
        opened(proxy.url) as app,
        pytest.raises(OutcomeUnknown, match="does not know it"),
    ):
        app.queue("q").send("x", durability="replicas=1")


def test_no_answer_to_the_question_is_unknown_and_never_not_enqueued(redis_server, app):
    with (
        Proxy(redis_server.port, request=lambda data: None if b"WAIT" in data else data) as proxy,
        opened(proxy.url, send_timeout=0.2) as cut_off,
        pytest.raises(OutcomeUnknown, match="could not be confirmed"),
    ):
        cut_off.queue("q").send("x", durability="replicas=1")
    assert app.queue("q").stats().ready == 1


def test_fsync_is_refused_by_a_server_without_waitaof_before_anything_is_sent(connect, url):
    with redis.Redis.from_url(url) as client:
        if b"waitaof" in client.command_list():
            pytest.skip("this Redis has WAITAOF")
    queue = connect(url).queue("q")
    with pytest.raises(DurabilityUnavailable, match=r"WAITAOF.* nothing was enqueued"):
        queue.send("x", durability="fsync")
    with pytest.raises(DurabilityUnavailable, match=r"WAITAOF.* nothing was changed"):
        queue.configure(durability="fsync")
    assert queue.stats().ready == 0


@pytest.fixture
def newer(monkeypatch):
    """Valkey has WAITAOF; Debian's backports carry it."""
    if shutil.which("valkey-server") is None:
        pytest.skip("no valkey-server")
    monkeypatch.setattr(embedded, "_NAMES", ("valkey-server",))


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_fsync_answers_when_the_disk_has_it(newer, connect, policy):
    with EmbeddedRedis(settings=["--appendfsync", policy]) as server:
        queue = connect(server.url).queue("q")
        queue.send("x", durability="fsync")
        queue.configure(durability="fsync")
        connect(server.url).queue("q").send("y")
        assert queue.stats().counters == {"enqueued": 2, "confirms": 2}


def test_fsync_that_does_not_come_is_unknown(newer, connect, impatient):
    with EmbeddedRedis(settings=["--appendfsync", "no"]) as server:
        queue = connect(server.url).queue("q")
        with pytest.raises(OutcomeUnknown, match="fsync was not reached"):
            queue.send("x", durability="fsync")


def test_fsync_without_an_append_only_file_is_refused_before_anything_is_sent(newer, connect):
    with EmbeddedRedis(settings=["--appendonly", "no"]) as server:
        queue = connect(server.url).queue("q")
        with pytest.raises(DurabilityUnavailable, match="appendonly"):
            queue.send("x", durability="fsync")
        assert queue.stats().ready == 0
