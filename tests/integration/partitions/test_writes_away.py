"""Every way to send, while a part of a cluster is away: what an answer says of each message is true, and none is twice.

An answer says that a message was enqueued, that it was not, or that this is not known; a failure of the library or of a
command names the node. (HTTP does not name it to producers, who may not know the nodes.)
"""

import asyncio
import contextlib
import functools
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import redis
from botocore.exceptions import ClientError

import reliq
from reliq import NewMessage, ops
from reliq.cli import options
from reliq.cli.main import main
from reliq.errors import OutcomeUnknown, RedisUnavailable
from reliq.model.keys import QUEUES, QueueKeys
from reliq.model.partitions import bucket_of_key
from tests.integration.api.serving import Service, serving
from tests.integration.partitions.test_surfaces import dead, half_moved
from tests.integration.sqs import serving as sqs
from tests.support.cluster import Cluster

TIMEOUT = 0.3  #: seconds for which a send is repeated
MANY = 240  #: messages of a call that several partitions share
FORM = {"Sec-Fetch-Site": "same-origin"}
NDJSON = {"content-type": "application/x-ndjson"}


@dataclass(frozen=True)
class Answer:
    """What a surface has answered, of each body: True = it is enqueued, False = it is not, None = it does not know."""

    said: dict[str, bool | None]
    text: str = ""
    copies: int = 1  #: of each body that is enqueued
    names_node: bool = True  #: a failure must


Write = Callable[[str], Answer]  #: given a word that is in the bodies of no other write


def bodies_of(word: str, count: int) -> list[str]:
    return [f"{word}.{number:03}." for number in range(count)]


def library(call: Callable[[list[str]], object], count: int, copies: int, word: str) -> Answer:
    bodies = bodies_of(word, count)
    try:
        call(bodies)
    except (OutcomeUnknown, RedisUnavailable) as error:
        rest = None if isinstance(error, OutcomeUnknown) else False
        said = {one: True if place in error.enqueued else rest for place, one in enumerate(bodies)}
        return Answer(said, str(error), copies)
    return Answer(dict.fromkeys(bodies, True), "", copies)


def http(
    service: Service, path: str, request: Callable[[list[str]], dict[str, Any]], count: int, copies: int, word: str
) -> Answer:
    bodies = bodies_of(word, count)
    answer = service.post(path, **request(bodies), timeout=60)
    if answer.is_success or answer.is_redirect:
        return Answer(dict.fromkeys(bodies, True), "", copies)
    assert answer.status_code in (503, 504), (path, answer.text)
    if "html" in answer.headers["content-type"]:  # the dashboard
        return Answer(
            dict.fromkeys(bodies, False if "nothing was changed" in answer.text else None), answer.text, copies
        )
    if "results" in answer.json():  # of a batch, one for each message
        meaning = {"enqueued": True, "refused": False}
        every = [meaning.get(one["status"]) for one in answer.json()["results"]]
    else:
        every = [False if answer.json()["code"] == "redis_unavailable" else None] * count
    return Answer(dict(zip(bodies, every, strict=True)), answer.text, copies, names_node=False)


def shell(url: str, line: str, copies: int, word: str) -> Answer:
    (body,), said = bodies_of(word, 1), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        patch.setattr(options, "Reliq", functools.partial(reliq.Reliq, send_timeout=TIMEOUT))
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(body.encode())))
        status = main([*line.format(body).split(), "--url", url])
    return Answer({body: status == 0 or None}, said.getvalue(), copies)


def by_sqs(client: Any, address: str, count: int, word: str) -> Answer:
    bodies = bodies_of(word, count)
    entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
    try:
        if count == 1:
            client.send_message(QueueUrl=address, MessageBody=bodies[0])
            return Answer(dict.fromkeys(bodies, True))
        answer = client.send_message_batch(QueueUrl=address, Entries=entries)
    except ClientError as error:
        return Answer(dict.fromkeys(bodies, None), str(error), names_node=False)
    done = {bodies[int(one["Id"])]: True for one in answer.get("Successful", ())}
    return Answer({body: done.get(body) for body in bodies}, str(answer), names_node=False)


async def send_async(url: str, body: str) -> None:
    async with reliq.aio.Reliq(url, send_timeout=TIMEOUT) as app:
        await app.queue("plain0").send(body)


@pytest.fixture(scope="module")
def writes(cluster: Cluster) -> Iterator[dict[str, Write]]:
    """Each way to send, by its name: to `plain0`, and to `orders`, which has six partitions. Each was tried once."""
    with contextlib.ExitStack() as stack:
        app = stack.enter_context(reliq.Reliq(cluster.url, send_timeout=TIMEOUT))
        service = stack.enter_context(serving(cluster.url, send_timeout=TIMEOUT))
        client = sqs.client(stack.enter_context(sqs.serving(cluster.url, send_timeout=TIMEOUT)))
        orders, plain = app.queue("orders"), app.queue("plain0")
        orders.configure(partitions=6)
        for queue in ("orders", "plain0"):
            app.subscribe(queue, "new.order")
        address = client.create_queue(QueueName="plain0")["QueueUrl"]
        layout = app.store.call(ops.layout(QueueKeys("orders")))
        homes = {name: key_of(layout, name) for name in layout.every("orders")}
        keys = list(homes.values())

        def own(call: Callable[[list[str]], object], count: int = 1, copies: int = 1) -> Write:
            return functools.partial(library, call, count, copies)

        def web(path: str, request: Callable[[list[str]], dict[str, Any]], count: int = 1, copies: int = 1) -> Write:
            return functools.partial(http, service, path, request, count, copies)

        def keyed(bodies: list[str]) -> list[NewMessage]:
            return [NewMessage(body, key=key) for body, key in zip(bodies, keys, strict=True)]

        def lines(bodies: list[str]) -> str:
            return "\n".join(json.dumps({"body": body}) for body in bodies)

        to_orders, to_plain, topic = (
            f"/v1/{one}/messages" for one in ("queues/orders", "queues/plain0", "topics/new.order")
        )
        table: dict[str, Write] = {
            "send": own(lambda some: plain.send(some[0])),
            "send to partitions": own(lambda some: orders.send(some[0])),
            "send delayed": own(lambda some: orders.send(some[0], delay=3600)),
            "send_many": own(orders.send_many, MANY),
            "send_many with keys": own(lambda some: orders.send_many(keyed(some)), len(keys)),
            "publish": own(lambda some: app.publish("new.order", some[0]), copies=2),
            "aio send": own(lambda some: asyncio.run(send_async(cluster.url, some[0]))),
            "POST messages": web(to_plain, lambda some: {"json": {"body": some[0]}}),
            "POST messages to partitions": web(to_orders, lambda some: {"json": {"body": some[0]}}),
            "POST bytes": web(to_plain, lambda some: {"content": some[0], "headers": {"content-type": "text/plain"}}),
            "POST batch": web(f"{to_orders}/batch", lambda some: {"json": batch(some, keys)}, len(keys)),
            "POST NDJSON": web(f"{to_orders}/batch", lambda some: {"content": lines(some), "headers": NDJSON}, MANY),
            "POST topics": web(topic, lambda some: {"json": {"body": some[0]}}, copies=2),
            "POST flows": perhaps_waiting(web("/v1/flows", lambda some: {"json": flow(some)}, 2)),
            "dashboard": web("/queues/plain0/send", lambda some: {"data": {"body": some[0]}, "headers": FORM}),
            "reliq message send": functools.partial(shell, cluster.url, "message send plain0 {}", 1),
            "reliq message send --lines": functools.partial(shell, cluster.url, "message send plain0 --lines", 1),
            "reliq message publish": functools.partial(shell, cluster.url, "message publish new.order {}", 2),
            "SendMessage": functools.partial(by_sqs, client, address, 1),
            "SendMessageBatch": functools.partial(by_sqs, client, address, 5),
        }
        for name, key in homes.items():
            table[f"send with a key to {name}"] = own(functools.partial(send_with, orders, key))
            table[f"POST with a key to {name}"] = web(to_orders, functools.partial(request_with, key))
        answers = {name: write(f"whole-{place}") for place, (name, write) in enumerate(table.items())}
        assert [name for name, answer in answers.items() if not all(answer.said.values())] == []
        yield table


def send_with(queue: reliq.Queue, key: str, bodies: list[str]) -> str:
    return queue.send(bodies[0], key=key)


def request_with(key: str, bodies: list[str]) -> dict[str, Any]:
    return {"json": {"body": bodies[0], "key": key}}


def perhaps_waiting(write: Write) -> Write:
    """Of a flow that is not sent as a whole some messages may be there: they wait for it, and monitors give them up."""

    def written(word: str) -> Answer:
        answer = write(word)
        return replace(answer, said={body: said or None for body, said in answer.said.items()})

    return written


def key_of(layout: Any, home: str) -> str:
    return next(key for key in map(str, range(1000)) if layout.homes("orders", bucket_of_key(key))[-1] == home)


def batch(bodies: Sequence[str], keys: Sequence[str]) -> list[dict[str, str]]:
    return [{"body": body, "key": key} for body, key in zip(bodies, keys, strict=True)]


def flow(bodies: Sequence[str]) -> dict[str, Any]:
    queues = zip(("orders", "plain0"), bodies, strict=True)
    return {"messages": [{"queue": queue, "message": {"body": body}} for queue, body in queues]}


def stored(cluster: Cluster) -> bytes:
    """Return all elements of lists, sorted sets and hashes of all nodes, one after the other."""
    found: list[bytes] = []
    for server in cluster.masters():
        with redis.Redis(port=server.port) as client:
            for key in client.scan_iter(count=1000):
                kind = client.type(key)
                if kind == b"list":
                    found += client.lrange(key, 0, -1)
                elif kind == b"zset":
                    found += client.zrange(key, 0, -1)
                elif kind == b"hash":
                    found += client.hvals(key)
    return b"\n".join(found)


# Each of the three nodes is dead once.
@pytest.mark.long
@pytest.mark.parametrize(("fault", "keys"), [(dead, ("orders", QUEUES, "plain0")), (half_moved, ("orders", "plain0"))])
def test_what_an_answer_says_of_a_message_is_true(cluster, writes, fault, keys):
    unnamed: list[str] = []
    wrong: list[str] = []
    for key in keys:
        with fault(cluster, key) as missing:
            answers = {name: write(f"{fault.__name__}-{key}-{at}") for at, (name, write) in enumerate(writes.items())}
        everything = stored(cluster)
        for name, answer in answers.items():
            failed = not all(answer.said.values())
            if failed and answer.names_node and not any(one in answer.text for one in missing):
                unnamed.append(f"{key} away, {name}: {answer.text}")
            for body, said in answer.said.items():
                allowed = {True: {answer.copies}, False: {0}, None: {*range(answer.copies + 1)}}[said]
                if (count := everything.count(body.encode())) not in allowed:
                    wrong.append(f"{key} away, {name}: {body} is there {count} times, said {said}: {answer.text}")
    assert (unnamed, wrong) == ([], [])
