"""The whole work of each role, for tests of its rights: every kind of call that the role makes."""

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx

import reliq
from reliq import ops
from reliq.cli import main
from reliq.features.flows.steps import cancelled_queues
from reliq.model.keys import QueueKeys, new_owner
from reliq.protocol import resizing
from reliq.transport.store import Store
from reliq_monitor import MonitorThread
from reliq_sqs import keys
from tests.integration.api.serving import serving
from tests.integration.sqs.serving import client as client_of_sqs
from tests.integration.sqs.serving import serving as serving_sqs
from tests.support.workers import eventually, working

LARGE = b"large" * 1000  #: a body that lies apart from its element


def producer(url: str, admin: reliq.Reliq) -> None:
    """Send in every form, publish, prepare, and enter members of a cycle."""
    admin.subscribe("bound", "order.*")
    admin.queue("limited").configure(max_length=2, max_bytes=1024 * 1024)
    admin.queue("wide").configure(max_bytes=1024 * 1024)
    with contextlib.closing(reliq.Reliq(url)) as app:
        queue = app.queue("q")
        queue.send("plain")
        queue.send_many(range(3))
        queue.send_many([LARGE, "small"])
        queue.send("later", delay="1h")
        queue.send(LARGE, delay="1h")
        queue.send("once", dedup_key="a")
        queue.send("once", dedup_key="a")
        for _ in range(3):
            queue.send(LARGE, dedup_key="a", replace=True)
            queue.send(LARGE, dedup_key="b", replace=True, debounce="1h", at_most="2h")
        queue.send("now", dedup_key="b", replace=True)
        queue.send("in order", key="k")
        queue.send("in order", key="k")
        queue.send("soon", priority="high")
        queue.send("late", priority="low", ttl="1h")
        queue.prepare("prepared").commit()
        queue.prepare(LARGE).commit()
        queue.prepare(LARGE).rollback()
        app.publish("order.created", 1)
        app.publish("order.created", LARGE)
        app.publish("nothing.bound", 1)
        queue.cycle.add("ann", "bob")
        queue.cycle.remove("ann")
        app.schedules.add("s", "1h", "q", LARGE)
        app.schedules.add("s", "* * * * *", "moved")
        app.schedules.pause("s")
        app.schedules.resume("s")
        app.schedules.run("s")
        app.schedules.list()
        app.schedules.remove("s")
        with app.flow() as flow:
            first = flow.send("q", "first", key="k")
            flow.send("q", LARGE, after=[first, flow.send("flowing", "second")], on_failure="skip")
        for limited in (app.queue("limited"), app.queue("wide")):
            limited.send(LARGE)
            limited.send("later", delay="1h")
            with contextlib.suppress(reliq.QueueFull):
                limited.send(LARGE)
            with contextlib.suppress(reliq.QueueFull), app.flow() as flow:
                flow.send(limited.name, LARGE)
        for durability in ("replicas=1", "fsync"):
            with contextlib.suppress(reliq.ReliqError):  # there is no replica; old servers have no WAITAOF
                queue.send("durable", durability=durability)


def worker(url: str, admin: reliq.Reliq) -> None:
    """Handle every kind of message, in every kind of loop, with broadcasts and check-backs; no monitor beside."""
    done: list[str] = []
    with contextlib.closing(reliq.Reliq(url)) as app:

        @app.handler("q", retry=reliq.fixed(0, limit=2))
        def handle(message: reliq.Message) -> None:
            done.append(message.body[:5].decode())
            message.progress(0.5, "half way")
            message.emit("half way")
            if message.body == b"fails":
                raise ValueError("as it should")
            if message.body == b"dies":
                raise reliq.Dead("as it should")

        @app.handler("async", once=True)
        async def handle_async(message: reliq.Message) -> None:
            done.append(message.body.decode())

        @app.handler("few", breaker=reliq.breaker(minimum=1, open_for="0.1s"), retry=reliq.fixed(0, limit=9))
        def handle_few(message: reliq.Message) -> None:
            done.append(f"few {message.failures}")
            if message.failures == 0:
                raise reliq.Retry("too many", delay="0.1s", scope="queue")

        app.handler("round")(lambda message: reliq.Again(delay=1))
        app.every("0 0 1 1 *")(handle)
        app.broadcast("config.#")(lambda message: done.append("heard"))
        app.check("q")(lambda message: True)
        admin.queue("q").send_many(["fine", LARGE, "fails", "dies"])
        admin.queue("q").send("expired", ttl=0.001)
        for body in (LARGE, "latest"):
            admin.queue("q").send(body, dedup_key="k", replace=True)
        for key in ("a", "a", "b"):
            admin.queue("q").send(key, key=key, priority="high")
        admin.queue("few").configure(rate="1000/s", concurrency=1)
        admin.queue("few").send_many(["fails", "waits"])
        admin.queue("async").send("async")
        admin.queue("round").cycle.add("ann")
        admin.queue("q").prepare("asked", timeout="1s")
        with monitoring(admin.url), working(app, threads=2):
            eventually(lambda: {"fine", "large", "async", "a", "b", "asked", "few 1", "lates"} <= set(done))
            eventually(lambda: admin.publish("config.new", 1) and "heard" in done)
            eventually(admin.schedules.list)
        with working(app):
            admin.queue("q").send("inline")
            eventually(lambda: "inlin" in done)
            cut(admin, "worker")
            admin.queue("q").send("after the cut")
            eventually(lambda: "after" in done)
        consumer(app, admin)


def consumer(app: reliq.Reliq, admin: reliq.Reliq) -> None:
    """Claim and settle by hand, wait while idle, and lose a lease."""
    admin.queue("hand").send_many(range(4))
    with app.queue("hand").consumer(lease=1) as one:
        first, second, third, fourth = one.claim(10)
        one.ack(first)
        one.retry(second, delay=1)
        one.dead(third, "no good")
        one.release(fourth)
        one.claim(10)
        one.claim(10, wait=1.2)
    admin.queue("hand").configure(concurrency=1)
    admin.queue("hand").send_many(range(2))
    with app.queue("hand").consumer() as one, app.queue("hand").consumer() as other:
        one.claim(1)
        other.claim(1, wait=0.2)


def cut(admin: reliq.Reliq, user: str) -> None:
    """End all connections of this user: each named one that follows ends the one before it once more."""
    admin.store.call(ops.command("CLIENT", "KILL", "USER", user))


@contextlib.contextmanager
def monitoring(url: str) -> Iterator[MonitorThread]:
    store = Store(url)
    thread = MonitorThread(store)
    thread.start()
    try:
        yield thread
    finally:
        thread.stop()
        store.close()


def abandon(admin: reliq.Reliq, queue: str) -> None:
    """Leave all ready messages in the list of a consumer with an expired lease."""
    keys, consumer = QueueKeys(queue), new_owner()
    admin.store.call([ops.register(keys, consumer, 1.0), ops.claim(keys, consumer, 1.0, 100)])
    admin.store.call(ops.command("DEL", keys.lease(consumer)))


def resize(admin: reliq.Reliq, before: int, after: int) -> None:
    """Leave the change of the number of partitions to a monitor, of a queue with keys and an early signal."""
    queue = admin.queue("parts")
    queue.configure(partitions=before)
    queue.signal("to-come", "go", 1)
    for number in range(8):
        queue.send("x", key=f"{number}", delay=0.01)
    assert admin.store.run(resizing.change("parts", after, sharded=False)).count == after
    queue.purge()


def state_of(admin: reliq.Reliq, flow: str) -> str:
    """Return the state of the last message of a flow."""
    progress = admin.flow_progress(flow)
    return progress.members[-1].state if progress else ""


def monitor(url: str, admin: reliq.Reliq) -> None:
    """Promote, reclaim, trim, end broadcast queues, ask about prepared messages, lead, and count for Prometheus."""
    admin.queue("q").configure(dead_max_count=1, dead_max_age="1h")
    admin.queue("q").send("due", delay=0.01)
    admin.queue("q").prepare("undecided", timeout="1s", checks=1)
    admin.queue("lost").send_many(["x", "x", LARGE])
    admin.queue("lost").send_many(["x"] * 2, key="k")
    admin.schedules.add("large", "1s", "ticks", LARGE)
    admin.schedules.add("in-order", "1s", "ticks", key="k", priority="high")
    admin.queue("ticks").configure(max_length=10_000, max_bytes=100_000_000)
    abandon(admin, "lost")
    flows = []
    for rule in ("fail", "skip", "run"):
        with admin.flow() as flow:
            flow.send("flowing", LARGE, after=[flow.send("q", "gone", delay="1h")], on_failure=rule)
        flows.append(flow)
    for flow in flows:
        admin.queue("q").cancel_many(headers={"flow": flow.id})
    with admin.queue("q").consumer() as dying:
        admin.queue("q").send_many(["dead", LARGE, LARGE])
        for message in dying.claim(10):
            dying.dead(message, "as it should")
    with admin.flow() as given_up:  # its canceller dies, and some of it is ready, delayed, or waits for its key
        given_up.send("cancelled", LARGE)
        given_up.send("cancelled", LARGE, key="k")
        given_up.send("cancelled", LARGE, key="k")
        given_up.send("cancelled", LARGE, delay="1h")
        given_up.send("cancelled", LARGE, priority="low")
    admin.store.run(cancelled_queues(given_up.id))
    resize(admin, 1, 3)
    with monitoring(url) as thread:
        eventually(lambda: admin.queue("cancelled").stats().counters.get("cancelled") == 5)
        eventually(lambda: not admin.queue("parts").partitions().moving)
        resize(admin, 3, 1)
        eventually(lambda: len(admin.queue("parts").partitions().partitions) == 1)
        eventually(lambda: admin.queue("q").stats().dead <= 1)
        eventually(lambda: thread.monitor.state().leading)
        eventually(lambda: admin.queue("lost").stats().counters.get("reclaimed") == 4)
        eventually(lambda: not admin.queue("q").stats().prepared)
        eventually(lambda: [state_of(admin, one.id) for one in flows] == ["dead", "skipped", "open"])
        eventually(lambda: all(one.fired > 1 for one in admin.schedules.list()))
        cut(admin, "monitor")
        admin.queue("q").send("due after the cut", delay=0.01)
        eventually(lambda: not admin.queue("q").stats().delayed)
    run("audit", url)
    run("stats", url)


OPERATING = (
    ("stats",), ("stats", "q"), ("config", "q"), ("config", "q", "max_length=100"), ("pause", "q"), ("resume", "q"),
    ("config", "parts", "partitions=3"), ("queue", "partitions", "parts"), ("config", "parts", "partitions=2"),
    ("config", "q", "rate=100/s", "concurrency=9"), ("breaker", "q", "open", "--for", "1h"),
    ("breaker", "q", "close"),
    ("find", "in-order"), ("message", "search", "q", "x"), ("find", "later", "--queue", "q"), ("top", "--once"),
    ("cancel", "q", "--key", "none"), ("cancel", "q", "in-order"), ("cancel", "q", "prepared"), ("cancel", "q", "held"),
    ("cancel", "q", "later"), ("topics", "bind", "q", "order.*"), ("topics", "list"), ("topics", "test", "order.a"),
    ("topics", "unbind", "q", "order.*"), ("dead", "list", "q"), ("delayed", "list", "q"), ("audit",),
    ("message", "output", "q", "followed", "--wait", "1s"),
    ("delayed", "run", "q", "--all"),
    ("dead", "redrive", "q", "--limit", "1"), ("dead", "purge", "q", "--all", "--yes"), ("doctor",),
    ("purge", "q", "--yes"), ("keys", "create", "x", "--scope", "enqueue", "--queue", "*"), ("keys", "list"),
    ("audit", "--repair"), ("queue", "delete", "q", "--force", "--yes"),
)  # fmt: skip


def operator(url: str, admin: reliq.Reliq) -> None:
    """Every command line call that reads or changes queues, topics and keys."""
    admin.queue("q").send_many([LARGE] * 5)
    admin.queue("q").send("later", delay="1h", id="later")
    admin.queue("parts").signal("to-come", "go", 1)
    for _ in range(2):
        admin.queue("q").send("in order", key="k")
    admin.queue("q").send("in order too", key="k", id="in-order")
    admin.queue("q").prepare("undecided", id="prepared")
    with admin.queue("q").consumer() as one:
        for message in one.claim(3):
            one.dead(message, "as it should")
    admin.queue("q").send("held", id="held", priority="high")
    with admin.flow() as flow:
        flow.send("flowing", "last", after=[flow.send("q", "first", delay="1h")])
    with admin.queue("q").consumer() as holder:
        holder.claim(1)
        for arguments in OPERATING:
            run(*arguments, url=url)
        for words in (("flow", "list"), ("flow", "show", flow.id), ("flow", "cancel", flow.id)):
            run(*words, url=url)


def api(url: str, admin: reliq.Reliq) -> None:
    """What the HTTP service does for its clients: enqueue, lease, settle, operate, show, measure."""
    out = run("keys", "create", "all", *(f"--scope={one}" for one in ("enqueue", "consume", "operate", "metrics")),
              "--queue", "*", "--rate", "1000", url=admin.url)  # fmt: skip
    key = out.strip().splitlines()[-1]
    with serving(url) as client:
        client.headers["authorization"] = f"Bearer {key}"
        answered = Answered(client)
        answered("POST", "/v1/queues/q/messages", json={"body": "x"}, headers={"Idempotency-Key": "a"})
        answered("POST", "/v1/queues/q/messages", json={"body": "x", "delay": 60})
        batch = [{"body": 1}, {"body": 2, "key": "k"}, {"body": LARGE.decode()}]
        answered("POST", "/v1/queues/q/messages/batch", json=batch)
        answered("POST", "/v1/topics/order.created/messages", json={"body": "x"})
        first = {"queue": "q", "message": {"body": 1, "delay": "1h"}}
        parts = [first, {"queue": "flowing", "message": {"body": 2}, "after": [0]}]
        flow = answered("POST", "/v1/flows", json={"messages": parts}).json()["id"]
        for path in ("/v1/flows", f"/v1/flows/{flow}", "/flows", f"/flows/{flow}"):
            answered("GET", path)
        answered("DELETE", f"/v1/flows/{flow}")
        lease = answered("POST", "/v1/queues/q/leases", json={"limit": 3}).json()
        answered("POST", f"/v1/queues/q/leases/{lease['lease']}/extend", json={})
        first, second, third = (message["id"] for message in lease["messages"])
        report = {"id": first, "progress": 0.5, "state": 1}
        answered("POST", f"/v1/queues/q/leases/{lease['lease']}/progress", json=report)
        answered("POST", f"/v1/queues/q/leases/{lease['lease']}/emit", json={"id": first, "chunk": "x"})
        for path in (f"/v1/queues/q/messages/{first}/output", f"/queues/q/output?id={first}"):
            answered("GET", path)
        answered("GET", f"/v1/queues/q/messages/{first}")
        for one in (third, admin.queue("q").send("ready"), admin.queue("q").send("later", delay="1h")):
            answered("DELETE", f"/v1/queues/q/messages/{one}")
        answered("GET", "/v1/queues/q/search?text=x")
        answered("POST", "/v1/queues/q/cancel", json={"headers": {"a": "b"}})
        settle = {"ack": [first], "dead": [{"id": second, "reason": "no"}], "retry": [{"id": third, "delay": 60}]}
        answered("POST", f"/v1/queues/q/leases/{lease['lease']}/settle", json=settle)
        answered("POST", "/v1/queues/empty/leases", json={"limit": 3, "wait": 1})
        cut(admin, "api")
        answered("POST", "/v1/queues/empty/leases", json={"limit": 3, "wait": 1})
        answered("PATCH", "/v1/queues/q", json={"max_length": 100, "rate": "1000/s", "concurrency": 1})
        admin.queue("parts").signal("to-come", "go", 1)
        for partitions in (3, 1):
            answered("PATCH", "/v1/queues/parts", json={"partitions": partitions})
            answered("POST", "/v1/queues/parts/leases", json={"wait": 0.5})
        answered("POST", "/v1/queues/q/leases", json={"limit": 1})
        answered("POST", "/v1/queues/q/leases", json={"limit": 1, "wait": 1})
        for state in ("open", "closed"):
            answered("PUT", "/v1/queues/q/breaker", json={"state": state})
        for call, body in {
            "pause": {}, "resume": {}, "dead/redrive": {}, "purge": {"confirm": "q"}, "dead/purge": {"all": True},
        }.items():  # fmt: skip
            answered("POST", f"/v1/queues/q/{call}", json=body)
        for page in (
            "/v1/queues",
            "/v1/queues/q",
            "/v1/queues/q/dead",
            "/healthz",
            "/metrics",
            "/",
            "/queues/q",
        ):
            answered("GET", page)
        eventually(lambda: client.get("/readyz").is_success)  # it gives Redis 0.8 s


def sqs(url: str, admin: reliq.Reliq) -> None:
    """What `reliq sqs --no-monitor` does, and its keys."""
    with contextlib.closing(Store(url)) as store:
        identity, _ = store.run(keys.create(keys.Vault("a text that encrypts"), "n", ("send",), ("*",), None))
        store.run(keys.read_all())
        store.run(keys.revoke(identity))
    with serving_sqs(url, strict_timing=True) as port:
        sqs = client_of_sqs(port)
        arns = {}
        for name, attributes in (("dead", {}), ("q", {}), ("f.fifo", {"FifoQueue": "true"})):
            made = sqs.create_queue(QueueName=name, Attributes=attributes, tags={"a": "b"})["QueueUrl"]
            found = sqs.get_queue_attributes(QueueUrl=made, AttributeNames=["All"])["Attributes"]
            arns[name] = found["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arns["dead"], "maxReceiveCount": 1})
        sqs.set_queue_attributes(QueueUrl="q", Attributes={"RedrivePolicy": policy})
        large = [{"Id": f"{at}", "MessageBody": "m" * 5000, "DelaySeconds": at} for at in range(2)]
        sqs.send_message_batch(QueueUrl="q", Entries=large)
        sqs.send_message(QueueUrl="q", MessageBody="m", MessageGroupId="tenant")
        for visibility in (0, 0):
            sqs.receive_message(QueueUrl="q", MaxNumberOfMessages=10, VisibilityTimeout=visibility, WaitTimeSeconds=1)
        sqs.create_queue(QueueName="wide")
        admin.queue("wide").configure(partitions=3)
        sqs.receive_message(QueueUrl="wide", WaitTimeSeconds=1)
        for at in range(3):
            sqs.send_message(QueueUrl="f.fifo", MessageBody="m", MessageGroupId="g", MessageDeduplicationId=f"{at}")
        wanted = {"QueueUrl": "f.fifo", "MaxNumberOfMessages": 3, "ReceiveRequestAttemptId": "a"}
        received = [sqs.receive_message(**wanted)["Messages"] for _ in range(2)]
        first, second, _ = [one["ReceiptHandle"] for one in received[1]]
        sqs.change_message_visibility(QueueUrl="f.fifo", ReceiptHandle=first, VisibilityTimeout=0)
        sqs.delete_message(QueueUrl="f.fifo", ReceiptHandle=second)
        cut(admin, "sqs")
        sqs.start_message_move_task(SourceArn=arns["dead"])
        eventually(lambda: _moved(sqs, arns["dead"]))
        sqs.list_dead_letter_source_queues(QueueUrl="dead")
        sqs.list_queues()
        sqs.purge_queue(QueueUrl="f.fifo")
        sqs.untag_queue(QueueUrl="q", TagKeys=["a"])
        sqs.delete_queue(QueueUrl="q")


def _moved(sqs: Any, arn: str) -> bool:
    return bool(sqs.list_message_move_tasks(SourceArn=arn)["Results"][0]["Status"] == "COMPLETED")


class Answered:
    """Calls of the service, each of which must succeed."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._client.request(method, path, **options)
        assert answer.is_success, (method, path, answer.text)
        return answer


NOUNS = ("dead", "topics", "keys", "delayed", "queue", "message", "worker", "flow")


def run(*arguments: str, url: str = "") -> str:
    """Run a command line call, which must not fail; what it printed."""
    if not url:
        arguments, url = arguments[:-1], arguments[-1]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        command = arguments[: 2 if arguments[0] in NOUNS else 1]
        try:
            status = main.main([*command, "--url", url, *arguments[len(command) :]])
        except SystemExit as error:
            raise AssertionError((arguments, errors.getvalue())) from error
    assert status in (0, 1), (arguments, errors.getvalue())
    assert "permission" not in errors.getvalue(), errors.getvalue()
    return out.getvalue()


WORK: dict[str, Callable[[str, reliq.Reliq], None]] = {
    "producer": producer, "worker": worker, "monitor": monitor, "api": api, "operator": operator, "sqs": sqs,
}  # fmt: skip
