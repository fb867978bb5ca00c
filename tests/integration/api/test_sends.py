"""Single enqueues that meet go together, and each is answered for itself."""

import asyncio

from reliq import NewMessage, OutcomeUnknown, QueueFull, aio
from reliq.embedded import EmbeddedRedis
from reliq_api.background import Background
from reliq_api.enqueue.sends import Sends
from reliq_api.joined import Joined
from tests.support.proxy import Proxy


def send_all(url, queue, messages, **options):
    """Send them at the same time; the answers, errors among them."""

    async def scene():
        async with aio.Reliq(url, **options) as reliq, Background() as background:
            sends = Sends(reliq, Joined(background))
            return await asyncio.gather(*(sends.send(queue, one) for one in messages), return_exceptions=True)

    return asyncio.run(scene())


def test_all_are_enqueued_in_the_order_they_came_in_a_few_calls(redis_server, url, app, orders):
    calls = []

    def request(data):
        calls.append(data)
        return data

    messages = [NewMessage(number) for number in range(500)]
    with Proxy(redis_server.port, request=request) as proxy:
        ids = send_all(proxy.url, orders.name, messages)
    assert ids == [message.id for message in messages]
    assert len(calls) < 20
    with orders.consumer() as consumer:
        assert [message.json() for message in consumer.claim(limit=500)] == list(range(500))


def test_options_and_duplicates_are_kept_apart(url, orders):
    messages = [NewMessage("first"), NewMessage("a", dedup_key="k"), NewMessage("b", dedup_key="k")]
    messages += [NewMessage("c", delay=60), NewMessage("d", ttl=60)]
    ids = send_all(url, orders.name, messages)
    assert ids[2] == ids[1]
    assert [message.duplicate for message in messages] == [False, False, True, False, False]
    assert (orders.stats().ready, orders.stats().delayed) == (3, 1)


def test_a_queue_with_room_for_some_takes_these(url, orders):
    orders.configure(max_length=3)
    answers = send_all(url, orders.name, [NewMessage(number) for number in range(10)])
    assert [isinstance(answer, str) for answer in answers] == [True] * 3 + [False] * 7
    assert all(isinstance(answer, QueueFull) for answer in answers[3:])
    assert (orders.stats().ready, orders.stats().counters["rejected"]) == (3, 7)


def test_of_a_queue_with_partitions_what_one_has_taken_is_not_sent_again(url, half_full):
    orders, full, free = half_full
    messages = [NewMessage(number, key=full if number % 3 else free) for number in range(9)]
    answers = send_all(url, orders.name, messages)
    assert [isinstance(answer, str) for answer in answers] == [number % 3 == 0 for number in range(9)]
    assert [answers[number] for number in (0, 3, 6)] == [messages[number].id for number in (0, 3, 6)]
    counters = orders.stats().counters
    assert (counters["enqueued"], counters["rejected"]) == (orders.stats().ready, 6) == (13, 6)


def test_an_unknown_outcome_names_only_ones_own_message(redis_server, url, orders):
    messages = [NewMessage(number) for number in range(5)]
    sending = [False]

    def request(data):
        sending[0] = b"EVALSHA" in data
        return data

    def reply(data):
        return None if sending[0] and b"NOSCRIPT" not in data else data

    with Proxy(redis_server.port, request=request, reply=reply) as proxy:
        answers = send_all(proxy.url, orders.name, messages, send_timeout=0.1)
    assert [type(answer) for answer in answers] == [OutcomeUnknown] * 5
    assert [answer.ids for answer in answers] == [(message.id,) for message in messages]


def test_large_bodies_go_in_calls_of_a_megabyte(url, orders):
    answers = send_all(url, orders.name, [NewMessage(b"x" * 200_000) for _ in range(30)])
    assert len(set(answers)) == orders.stats().ready == 30


def test_sends_succeed_again_after_a_failed_group_of_sends():
    async def scene(server):
        async with aio.Reliq(server.url, send_timeout=0.1) as reliq, Background() as background:
            sends = Sends(reliq, Joined(background))
            await sends.send("orders", NewMessage(1))
            server.stop()
            three = (sends.send("orders", NewMessage(2)) for _ in range(3))
            failed = await asyncio.gather(*three, return_exceptions=True)
            server.start()
            await sends.send("orders", NewMessage(3))
            return failed, (await reliq.queue("orders").stats()).ready

    with EmbeddedRedis() as server:
        failed, ready = asyncio.run(scene(server))
    assert all(isinstance(one, Exception) for one in failed)
    assert ready == 2
