"""A consumer knows what its processing list holds, whatever happens to its connections, its process and its calls."""

import asyncio
import contextlib
import os
import signal
import threading
import time

import pytest
import redis

import reliq
from reliq import aio, ops
from reliq.model.keys import QueueKeys, connection_name, is_connected
from reliq.model.outgoing import NewMessage
from reliq.ops import command
from tests.support.late_proxy import LateProxy
from tests.support.proxy import Proxy
from tests.support.tasks import cancelled
from tests.support.workers import eventually

KEYS = QueueKeys("q")


def kill_connections(store, consumer):
    """What a server does that is restarted, or that closes idle clients; how many there were."""
    name = connection_name(consumer).encode()
    clients = [line.split() for line in store.call(command("CLIENT", "LIST")).splitlines()]
    ours = [fields[0].removeprefix(b"id=") for fields in clients if b"name=" + name in fields]
    for identity in ours:
        store.call(command("CLIENT", "KILL", "ID", identity))
    return len(ours)


# --- a claim that is carried out late ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hold", [b"BLMOVE", b"EVALSHA"], ids=["idle claim", "claim"])
def test_a_claim_that_arrives_after_the_read_back_moves_nothing(face, redis_server, store, hold):
    with LateProxy(redis_server.port, hold=hold) as proxy, face(proxy.url).queue("q").consumer(lease=30) as consumer:
        consumer.claim()
        proxy.arm()
        assert consumer.claim(wait=0.2) == []
        assert proxy.held.is_set()
        store.call(command("LPUSH", KEYS.messages, NewMessage("x").element(1)))
        proxy.deliver()
        for _ in range(3):  # whatever has reached the server by now is carried out before these
            store.call(command("PING"))
        (message,) = consumer.claim(wait=5)
        assert message.body == b"x"


def test_where_connections_cannot_be_closed_the_consumer_looks_once_a_lease(face, redis_server, store):
    """An ACL without CLIENT KILL: the late claim is carried out, and found."""
    store.call(command("ACL", "SETUSER", "limited", "reset", "on", ">pw", "~*", "&*", "+@all", "-client|kill"))
    with LateProxy(redis_server.port, hold=b"BLMOVE") as proxy:
        url = proxy.url.replace("//", "//limited:pw@")
        with face(url).queue("q").consumer(lease=1) as consumer:
            consumer.claim()
            proxy.arm()
            assert consumer.claim(wait=0.2) == []
            store.call(command("LPUSH", KEYS.messages, NewMessage("x").element(1)))
            proxy.deliver()
            eventually(lambda: store.call(command("LLEN", KEYS.processing(consumer.id))) == 1)
            (message,) = eventually(lambda: consumer.heartbeat() and consumer.claim(wait=0.1))
            assert message.body == b"x"
    store.call(command("ACL", "DELUSER", "limited"))


# --- a reconnect without an error -------------------------------------------------------------------------------------


def test_after_a_reconnect_the_list_is_read_back(face, store):
    """Redis was restarted and has lost its last second: a message that was settled lies in the list again."""
    with face().queue("q").consumer(lease=30) as consumer:
        consumer.claim()
        store.call(command("LPUSH", KEYS.processing(consumer.id), NewMessage("settled before").element(1)))
        assert kill_connections(store, consumer.id) >= 1
        getattr(consumer, "inner", consumer)._first._connections.main._used_at = 0.0  # idle for long: looked at first
        (message,) = eventually(consumer.claim)
        assert message.body == b"settled before"


def test_what_no_reconnect_tells_is_found_within_a_lease(face, store):
    with face().queue("q").consumer(lease=1) as consumer:
        consumer.claim()
        store.call(command("LPUSH", KEYS.processing(consumer.id), NewMessage("x").element(1)))
        assert eventually(lambda: consumer.heartbeat() and consumer.claim())[0].body == b"x"


# --- interrupts -------------------------------------------------------------------------------------------------------


class Interrupt(Exception):
    pass


@contextlib.contextmanager
def interrupted_by(number):
    def handle(*_):
        raise Interrupt

    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("reply_arrives", [True, False], ids=["answered", "answer lost"])
def test_a_claim_that_a_signal_interrupts_forgets_nothing(url, redis_server, store, reply_arrives):
    """The signal comes when Redis has moved the message, and its answer has not been read."""

    def signal_first(data):
        if b"interrupt me" not in data:
            return data
        proxy.reply = lambda data: data
        os.kill(os.getpid(), signal.SIGUSR1)
        return data if reply_arrives else None

    with Proxy(redis_server.port, reply=signal_first) as proxy, interrupted_by(signal.SIGUSR1):
        queue = reliq.Reliq(proxy.url).queue("q")
        with queue.consumer(lease=30) as consumer:
            consumer.claim()
            sender = threading.Timer(0.2, lambda: reliq.Reliq(url).queue("q").send("interrupt me"))
            sender.start()
            received = []
            with contextlib.suppress(Interrupt):
                received = consumer.claim(wait=5)
            sender.join()
            received = received or consumer.claim(wait=5)
            assert [message.body for message in received] == [b"interrupt me"]


@pytest.mark.parametrize(("call", "reply"), [("ack", b"ok"), ("heartbeat", b":1\r\n*0\r\n")])
def test_the_handler_of_a_signal_calls_while_its_consumer_waits_for_a_reply(redis_server, store, call, reply):
    """Each reads its own reply, though one of them began in the middle of the other."""
    handled = []

    def signal_first(data):
        if reply not in data:
            return data
        proxy.reply = lambda data: data
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.1)
        return data

    with Proxy(redis_server.port) as proxy:
        queue = reliq.Reliq(proxy.url).queue("q")
        queue.send_many(["a", "b", "c"])
        with queue.consumer(lease=30) as consumer:
            messages = consumer.claim(limit=3)

            def act(*_):
                if call == "ack":
                    consumer.ack(messages.pop())
                else:
                    assert consumer.heartbeat()
                handled.append(call)

            act()  # with this the server knows the script
            before = signal.signal(signal.SIGUSR1, act)
            proxy.reply, began = signal_first, time.monotonic()
            act()
            assert time.monotonic() - began < 2
            signal.signal(signal.SIGUSR1, before)
            assert handled == [call] * 3
            assert queue.stats().processing == (0 if call == "ack" else 3)


def test_a_claim_that_is_cancelled_twice_gives_back_what_it_moved(url, redis_server, store):
    gate = threading.Event()

    def held_back(data):
        if b"cancel me" in data:
            gate.wait(20)
        return data

    async def scenario():
        app = aio.Reliq(proxy.url)
        async with app.queue("q").consumer(lease=30) as consumer:
            await consumer.claim()
            claim = asyncio.create_task(consumer.claim(wait=5))
            await asyncio.to_thread(eventually, lambda: b"blmove" in store.call(command("CLIENT", "LIST")))
            store.call(command("LPUSH", KEYS.messages, NewMessage("cancel me").element(1)))
            await asyncio.to_thread(eventually, lambda: store.call(command("LLEN", KEYS.processing(consumer.id))))
            for _ in range(2):
                claim.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(claim, 10)
            gate.set()
            await asyncio.to_thread(eventually, lambda: store.call(command("LLEN", KEYS.messages)) == 1)
        await app.close()

    with Proxy(redis_server.port, reply=held_back) as proxy:
        asyncio.run(scenario())


def test_a_claim_that_is_cancelled_while_it_waits_ends_and_gives_back_what_it_moved(redis_server, store, monkeypatch):
    gate, held = threading.Event(), list[bytes]()
    monkeypatch.setattr("reliq.contract.values.BLOCK", 60.0)  # an answer, or silence, would end the wait

    def hold_back_once(data):
        if b"one of three" in data and not held:
            held.append(data)
            gate.wait(20)
        return data

    async def scenario():
        app = aio.Reliq(proxy.url)
        async with app.queue("q").consumer(lease=600) as consumer:
            await consumer.claim()
            claim = asyncio.create_task(consumer.claim(2, wait=60))
            await asyncio.to_thread(eventually, lambda: b"blmove" in store.call(command("CLIENT", "LIST")))
            one, two, three = (NewMessage(f"{number} of three").element(1) for number in ("one", "two", "three"))
            store.call(command("LPUSH", KEYS.messages, one, two))
            await asyncio.to_thread(eventually, lambda: held)
            store.call(command("LPUSH", KEYS.messages, three))
            claim.cancel()
            with pytest.raises(asyncio.CancelledError):  # though the answer has not come
                await asyncio.wait_for(claim, 10)
            assert not gate.is_set()
            assert store.call(command("LLEN", KEYS.processing(consumer.id))) == 0
            assert [one.body for one in await consumer.claim(3)] == [
                b"one of three",
                b"two of three",
                b"three of three",
            ]
        await app.close()

    with Proxy(redis_server.port, reply=hold_back_once) as proxy:
        try:
            asyncio.run(scenario())
        finally:
            gate.set()


# --- names ------------------------------------------------------------------------------------------------------------


def test_both_connections_of_an_asyncio_consumer_are_named_and_come_back(url, store):
    async def scenario():
        app = aio.Reliq(url)
        async with app.queue("q").consumer(lease=3) as consumer:
            await consumer.claim()
            assert await consumer.heartbeat()
            assert kill_connections(store, consumer.id) == 2
            await asyncio.to_thread(eventually, lambda: connection_name(consumer.id).encode() in clients(store), 3)
        await app.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 8, 13, 21])
def test_a_context_that_is_cancelled_while_it_ends_gives_back_what_it_held(url, turns):
    """The task of the heartbeat must not stay: it would renew the lease as long as the process lives."""

    async def scenario():
        app = aio.Reliq(url)
        queue = app.queue("q")
        await queue.send("x")
        ending = asyncio.Event()

        async def work():
            async with queue.consumer() as consumer:
                assert await consumer.claim()
                ending.set()

        await cancelled(work(), ending, turns)
        stats = await queue.stats()
        assert (stats.ready, stats.processing, stats.consumers) == (1, 0, 0)
        await app.close()

    asyncio.run(scenario())


def clients(store):
    return store.call(command("CLIENT", "LIST"))


def test_a_connection_that_may_not_be_named_leaves_the_lease_to_decide(face, redis_server, store):
    store.call(command("ACL", "SETUSER", "nameless", "reset", "on", ">pw", "~*", "&*", "+@all", "-client|setname"))
    url = redis_server.url.replace("//", "//nameless:pw@")
    with face(url).queue("q").consumer(lease=30) as consumer:
        consumer.claim()
        assert not is_connected(consumer.id)
        (known,) = store.call(command("SMEMBERS", KEYS.consumers))
        assert known.decode() == consumer.id
    assert store.call(command("SMEMBERS", KEYS.consumers)) == []
    store.call(command("ACL", "DELUSER", "nameless"))


def is_busy(port):
    with redis.Redis(port=port) as client:
        try:
            return not client.ping()
        except redis.ResponseError as error:
            return "BUSY" in str(error)


def claims(consumer):
    with contextlib.suppress(reliq.ReliqError):
        consumer.claim()
        return True


def test_a_connection_is_named_also_when_redis_was_busy_as_it_was_made(face, redis_server, store):
    """-BUSY answers everything, CLIENT SETNAME too, while a script runs for too long."""
    spin = "local t = redis.call('TIME')[1] * 1 repeat until redis.call('TIME')[1] - t >= 2 return 1"
    store.call(command("CONFIG", "SET", "lua-time-limit", 10))
    with face().queue("q").consumer(lease=30) as consumer:
        consumer.claim()
        kill_connections(store, consumer.id)
        script = threading.Thread(target=lambda: store.call(command("EVAL", spin, 0), timeout=10))
        script.start()
        eventually(lambda: is_busy(redis_server.port))
        eventually(lambda: claims(consumer))
        script.join()
        consumer.claim()
        assert connection_name(consumer.id).encode() in clients(store)
    store.call(command("CONFIG", "SET", "lua-time-limit", 5000))


# --- a paused queue ---------------------------------------------------------------------------------------------------


def test_a_consumer_that_waits_at_a_paused_queue_leaves_redis_alone(face, store):
    def commands():
        return int(dict(line.split(b":") for line in store.call(command("INFO", "stats")).split() if b":" in line)[
            b"total_commands_processed"])  # fmt: skip

    def pause():
        """While the consumer waits: what comes now is moved to it, and goes back."""
        eventually(lambda: b"cmd=blmove" in clients(store))
        store.call([command("HSET", KEYS.config, "paused", 1), command("LPUSH", KEYS.messages, element)])

    element = NewMessage("x").element(1)
    with face().queue("q").consumer(lease=30) as consumer:
        consumer.claim()
        before = commands()
        pausing = threading.Thread(target=pause)
        pausing.start()
        assert consumer.claim(wait=1.5) == []
        pausing.join()
        assert commands() - before < 1000  # with those of looking for BLMOVE
        assert store.call(ops.stats(KEYS, [consumer.id])).ready == 1
