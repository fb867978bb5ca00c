"""The mistakes that people make, and word by word what reliq says about each of them."""

import asyncio
import contextlib
import logging
import socket
import threading
from datetime import UTC, datetime
from decimal import Decimal

import pytest

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.features.flows.model import FlowMessage
from reliq.ops import command
from reliq.runtime import advice
from reliq.testing import work_off
from reliq.transport.store import Store
from tests.support.commands import give_up_soon, run
from tests.support.workers import process

ESCAPES = 'the URL has it between "redis://:" and "@host", with / ? # @ : % in it written as %2F %3F %23 %40 %3A %25'


def handle(message):
    """Handle an order."""


def never_awaited(message):
    """Call an async function, and return what no one awaits."""
    return asyncio.sleep(0)


class Later:
    def __await__(self):
        yield


# --- in Python: the mistake, the error, what it says ---

APPLICATION = [
    (
        lambda app: app.handler(handle),
        reliq.InvalidName,
        '@app.handler above handle is not called: write @app.handler("handle")',
    ),
    (
        lambda app: app.broadcast(handle),
        reliq.InvalidName,
        '@app.broadcast above handle is not called: write @app.broadcast("order.#")',
    ),
    (
        lambda app: app.every(handle),
        reliq.InvalidName,
        '@app.every above handle is not called: write @app.every("5m")',
    ),
    (
        lambda app: app.on_dead(handle),
        reliq.InvalidName,
        "@app.on_dead above handle is not called: write @app.on_dead()",
    ),
    (
        lambda app: app.handler("orders", retry="5s")(handle),
        reliq.InvalidHandler,
        (
            "retry of queue 'orders' is '5s': give a number of retries such as 3, or a back-off such as "
            'reliq.exponential(limit=3) or reliq.fixed("30s", limit=3)'
        ),
    ),
    (
        lambda app: app.handler("orders", retry=reliq.fixed)(handle),
        reliq.InvalidHandler,
        "retry of queue 'orders' is reliq.fixed, which is not called: write reliq.fixed(\"3s\")",
    ),
    (
        lambda app: app.handler("orders", retry=reliq.steps)(handle),
        reliq.InvalidHandler,
        'retry of queue \'orders\' is reliq.steps, which is not called: write reliq.steps("10s", "1m")',
    ),
    (
        lambda app: app.handler("orders", retry=reliq.rocketmq_levels)(handle),
        reliq.InvalidHandler,
        "retry of queue 'orders' is reliq.rocketmq_levels, which is not called: write reliq.rocketmq_levels()",
    ),
    (
        lambda app: app.handler("orders", breaker=reliq.breaker)(handle),
        reliq.InvalidHandler,
        (
            "breaker of 'orders' is <class 'reliq.model.breaker.Breaker'>: write "
            "reliq.breaker(threshold=0.5, minimum=20)"
        ),
    ),
    (
        lambda app: reliq.step(retry=reliq.exponential)(handle),  # type: ignore[arg-type]
        reliq.InvalidHandler,
        "retry of step 'handle' is reliq.exponential, which is not called: write reliq.exponential()",
    ),
    (
        lambda app: app.handler("orders", retry=-1)(handle),
        reliq.InvalidSetting,
        "retry is -1: it must be a whole number from 0 to 10000",
    ),
    (
        lambda app: app.handler("orders", retry=3, max_retries=3)(handle),
        reliq.InvalidHandler,
        "the handler of queue 'orders' has retry=3 and max_retries=3: give one of them",
    ),
    (
        lambda app: app.handler("orders", dead_on="ValueError")(handle),
        reliq.InvalidHandler,
        "dead_on has 'ValueError', which is not an exception class",
    ),
    (
        lambda app: [app.handler("orders")(handle), app.handler("orders")(handle)],
        reliq.InvalidHandler,
        (
            "queue 'orders' has two handlers, handle and handle: one queue has one handler; use a second queue, "
            "or a topic with two subscriptions"
        ),
    ),
    (
        lambda app: app.queue("my orders"),
        reliq.InvalidName,
        "queue name 'my orders': use 1 to 128 of A-Z a-z 0-9 . _ @ -, the first of them a letter or a digit",
    ),
    (
        lambda app: app.queue("orders").result(FlowMessage("orders", "7")),
        reliq.InvalidName,
        "message id FlowMessage(queue='orders', id='7'): give the .id of this FlowMessage",
    ),
    (
        lambda app: app.queue("orders").send({"items": [{"at": 1}, {"at": datetime.now(UTC)}]}),
        reliq.InvalidMessage,
        (
            "the body is neither bytes, text nor JSON: $.items[1].at is of type datetime, which "
            "JSON does not have: send its isoformat()"
        ),
    ),
    (
        lambda app: app.queue("orders").send({"price": Decimal("9.99")}),
        reliq.InvalidMessage,
        (
            "the body is neither bytes, text nor JSON: $.price is of type Decimal, which JSON does "
            "not have: send str() of it"
        ),
    ),
    (
        lambda app: app.queue("orders").send({"a b": {1: float("nan")}}),
        reliq.InvalidMessage,
        "the body is neither bytes, text nor JSON: $['a b']['1'] is nan, which JSON does not have",
    ),
    (
        lambda app: app.queue("orders").send({"parts": {(1, 2): "x"}}),
        reliq.InvalidMessage,
        (
            "the body is neither bytes, text nor JSON: a key at $.parts is of type tuple: the keys of a JSON "
            "object are texts"
        ),
    ),
    (
        lambda app: app.queue("orders").send_many(["a", {"b"}]),
        reliq.InvalidMessage,
        (
            "message 1 of the call: the body is neither bytes, text nor JSON: $ is of type set, "
            "which JSON does not have: send a list of it; nothing was enqueued"
        ),
    ),
    (
        lambda app: app.queue("orders").send_many("abc"),
        reliq.InvalidMessage,
        "send_many takes a list of bodies, not one str: use send",
    ),
    (
        lambda app: app.queue("orders").send("x", countdown=5),
        TypeError,
        (
            "unexpected keyword argument 'countdown' (reliq calls it delay); the message options of this call are "
            "at_most, cost, debounce, dedup_key, delay, headers, id, key, limit_key, priority, replace, ttl, window"
        ),
    ),
    (
        lambda app: app.queue("orders").send("x", delya=5),
        TypeError,
        (
            "unexpected keyword argument 'delya' (is it delay?); the message options of this call are at_most, cost, "
            "debounce, dedup_key, delay, headers, id, key, limit_key, priority, replace, ttl, window"
        ),
    ),
    (
        lambda app: app.handler("orders", retires=1),
        TypeError,
        (
            "unexpected keyword argument 'retires' (is it retry?); the options of this call are breaker, dead_on, "
            "max_retries, once, once_for, result, retry, retry_on, time_limit"
        ),
    ),
    (
        lambda app: app.middleware(rnus=handle),
        TypeError,
        "unexpected keyword argument 'rnus' (is it runs?); the options of this call are runs, sends",
    ),
    (lambda app: app.middleware(), TypeError, "give runs, sends, or both"),
    (
        lambda app: app.middleware(runs=5),
        reliq.InvalidHandler,
        "5 is no middleware: it has none of before, after, on_error, on_suspend",
    ),
    (
        lambda app: reliq.Reliq(""),
        reliq.InvalidSetting,
        ("the Redis URL is empty: give one, such as redis://localhost:6379/0, or none at all for that of RELIQ_URL"),
    ),
    (
        lambda app: app.queue("orders").send("x", delay="5 minutes"),
        reliq.InvalidMessage,
        'delay is \'5 minutes\': write seconds, or a number and a unit such as "90s" or "1h"',
    ),
    (
        lambda app: app.queue("orders").send("x", repeats=-1),
        reliq.InvalidSetting,
        "repeats is -1: it must be a whole number from 0 to 1000000",
    ),
    (
        lambda app: app.queue("orders").configure(max_lenght=5),
        reliq.InvalidSetting,
        (
            "a queue has no setting 'max_lenght'; it has max_length, max_bytes, max_deliveries, dead_max_age, "
            "dead_max_count, dead_to, durability, rate, burst, concurrency, key_rate, key_concurrency, fair, "
            "weights, track, history, keep_output, partitions"
        ),
    ),
    (
        lambda app: app.schedules.add("nightly", "* * *", "orders", "x"),
        reliq.InvalidSetting,
        (
            "the cron expression '* * *' has 3 fields: write five fields (minute hour day month weekday) such as "
            "'*/5 * * * *', or an interval such as '30s'"
        ),
    ),
    (
        lambda app: app.handler("reports", time_limit="10m")(app.every("1h")(never_awaited)),
        reliq.InvalidHandler,
        (
            "@app.every is below @app.handler('reports'), and makes never_awaited the handler of queue "
            "'never_awaited': put it above @app.handler"
        ),
    ),
    (
        lambda app: reliq.Reliq("http://localhost"),
        reliq.InvalidSetting,
        (
            "Redis URL (not shown, it may have a password) with an unknown scheme: use redis://, rediss:// "
            "(TLS), unix://, redis+sentinel://host:port/service/db or redis+cluster://host:port,host:port"
        ),
    ),
]


@pytest.mark.parametrize(("mistake", "error", "says"), APPLICATION, ids=[says for *_, says in APPLICATION])
def test_in_an_application(app, mistake, error, says):
    with pytest.raises(error) as caught:
        mistake(app)
    assert str(caught.value) == says


# --- of handlers: what a def handler returns, and what its failure says ---

RETURNED = [
    (
        never_awaited,
        "the handler returned a coroutine that is never awaited: make the handler an async def",
    ),
    (
        lambda message: Later(),
        (
            "the handler returned an awaitable of type Later, which is never awaited: make the handler an async "
            "def and await it there"
        ),
    ),
    (
        lambda message: (part for part in message.body),
        "the handler returned a generator, of which nothing has run: loop over it in the handler",
    ),
    (lambda message: reliq.Retry(delay=5), "the handler returned reliq.Retry: raise it"),
    (lambda message: reliq.Dead, "the handler returned reliq.Dead: raise it"),
    (lambda message: reliq.Again, "the handler returned the class reliq.Again: return reliq.Again()"),
]


@pytest.mark.parametrize("kept", [None, "1h"], ids=["without a result", "with a result"])
@pytest.mark.parametrize(("handler", "says"), RETURNED, ids=[says for _, says in RETURNED])
def test_a_handler_that_returns_what_is_meant_otherwise_fails(app, handler, says, kept):
    app.handler("orders", retry=0, result=kept)(handler)
    identity = app.queue("orders").send("x")
    work_off(app)
    letter = app.queue("orders").dead.get(identity)
    assert letter.last_error.text.splitlines()[-1] == f"TypeError: {says}"


def test_the_log_of_a_failure_names_the_last_line_in_the_users_code(app, caplog):
    @app.handler("orders", retry=reliq.fixed("1h"))
    def charge(message: reliq.Message) -> None:
        Decimal(message.body.decode())

    identity = app.queue("orders").send("1,5")
    with caplog.at_level(logging.WARNING, "reliq.worker"):
        work_off(app)
    line = charge.__code__.co_firstlineno + 2
    (failed,) = [one.getMessage() for one in caplog.records if one.getMessage().startswith("failed ")]
    assert failed.startswith(f"failed queue=orders id={identity} failures=1 retry_in_seconds=3600.0 ")
    assert failed.endswith(f" at=tests/integration/test_mistakes.py:{line} in charge")


@pytest.mark.parametrize("handler", [never_awaited, lambda message: reliq.Dead("no")], ids=["coroutine", "Dead"])
def test_the_log_of_what_a_handler_returned_wrongly_names_no_line_of_reliq(app, caplog, handler):
    app.handler("orders", retry=reliq.fixed("1h"))(handler)
    app.queue("orders").send("x")
    with caplog.at_level(logging.WARNING, "reliq.worker"):
        work_off(app)
    (failed,) = [one.getMessage() for one in caplog.records if one.getMessage().startswith("failed ")]
    assert "error=the handler returned " in failed
    assert " at=" not in failed


# --- calls that work, and are most likely meant otherwise: a warning names the line ---


def blocking(app):
    async def shop():
        app.queue("orders").send("x")
        app.queue("orders").send("x")  # one warning is enough

    asyncio.run(shop())


def outside(app):
    app.queue("orders").consumer(lease=30).claim()


def twice(app):
    with app.queue("orders").consumer() as consumer:
        (message,) = consumer.claim()
        consumer.ack(message)
        consumer.ack(message)


WARNINGS = [
    (
        blocking,
        RuntimeWarning,
        (
            "reliq.Queue.send blocks the event loop until Redis answers: in async functions use reliq.aio.Reliq, "
            "and await send"
        ),
    ),
    (
        outside,
        RuntimeWarning,
        (
            "a consumer of 'orders' claims outside of its context: its lease is not renewed, so other consumers "
            "get its messages after 30 s; write with queue.consumer() as consumer"
        ),
    ),
    (twice, RuntimeWarning, "message one of 'orders' was settled before: settling it again changes nothing"),
    (
        lambda app: app.queue("orders").send("x", retries=1),
        DeprecationWarning,
        "retries= of a send is named repeats= now: retries are those of a handler",
    ),
]


@pytest.mark.parametrize(("mistake", "category", "says"), WARNINGS, ids=[says for *_, says in WARNINGS])
def test_a_call_that_is_most_likely_meant_otherwise_warns(app, monkeypatch, mistake, category, says):
    monkeypatch.setattr(advice, "_warned_of_blocking", False)
    app.queue("orders").send("x", id="one")
    with pytest.warns(category) as caught:
        mistake(app)
    assert [(str(one.message), one.filename) for one in caught] == [(says, __file__)]


@pytest.mark.parametrize("given", [{"retry": 3}, {"max_retries": 3}], ids=str)
def test_a_number_of_retries_is_understood(app, given):
    app.handler("orders", **given)(handle)
    (handler,) = app.handlers
    assert handler.policy.backoff == reliq.exponential(limit=3)


# --- of the Redis URL ---


@contextlib.contextmanager
def answering(answer):
    """A port that answers each connection with these bytes and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_all():
            while True:
                try:
                    connection = listening.accept()[0]
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    connection.recv(1000)
                    connection.sendall(answer)

        threading.Thread(target=answer_all, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}/0"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def guarded():
    """A server that wants the password `secret`."""
    with EmbeddedRedis() as server:
        with contextlib.closing(Store(server.url)) as store:
            store.call(command("CONFIG", "SET", "requirepass", "secret"))
        yield server.url


def said(url):
    with pytest.raises(reliq.RedisUnavailable) as caught, reliq.Reliq(url, send_timeout=0.1) as app:
        app.queue("orders").send("x")
    return str(caught.value)


def test_a_refused_connection():
    assert said("redis://127.0.0.1:1/0") == "Redis at redis://127.0.0.1:1/0 cannot be reached (connection refused)"


def test_an_unknown_host(monkeypatch):
    def unknown(*arguments, **options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert said("redis://redis.shop/0") == (
        "Redis at redis://redis.shop/0 cannot be reached (the host name cannot be resolved: Name or service not known)"
    )


def test_a_password_that_is_not_needed(url):
    assert said(url.replace("//", "//:secret@")) == (
        "Redis refuses: it has no password, but the URL has one: remove it from the URL, or set requirepass in Redis"
    )


def test_a_port_without_tls():
    with answering(b"-ERR Protocol error\r\n") as place:
        assert said(f"rediss://{place}") == (
            f"Redis at rediss://{place} cannot be reached (TLS: [SSL: WRONG_VERSION_NUMBER] wrong version number; "
            "if this port is not for TLS, the URL must begin with redis://)"
        )


def test_a_port_for_tls():
    with answering(b"") as place:
        assert said(f"redis://{place}") == (
            f"Redis at redis://{place} cannot be reached (the server closed the connection; "
            "if this port is for TLS, the URL must begin with rediss://)"
        )


# --- on the command line: the arguments, the exit status, what it says ---

COMMANDS = [
    (["stats", "ordrs"], 1, "there is no queue 'ordrs': did you mean 'orders'?"),
    (["audit", "ordrs"], 1, "there is no queue 'ordrs': did you mean 'orders'?"),
    (["config", "orders", "max_length"], 2, "a change 'max_length': write NAME=VALUE"),
    (
        ["config", "orders", "max_length=many"],
        2,
        "max_length is 'many': it must be a whole number from 1 to 1000000000000",
    ),
    (["send", "orders", "x", "--header", "a"], 2, "--header 'a': write NAME=VALUE"),
    (
        ["cancel", "orders"],
        2,
        (
            "only 'orders' is given: write `reliq message cancel QUEUE ID` (`reliq message find ID` names "
            "the queue), or the queue and --key KEY or --header NAME=VALUE"
        ),
    ),
    (["message", "output", "orders", "x", "--wait", "1ms"], 1, "no output of message x came within 0.001 s"),
    (
        ["message", "publish", "order.new", "x"],
        0,
        "no queue is bound to a pattern that matches: the message reached none",
    ),
    (["find", "x"], 1, "message x is not in any queue: it was handled, removed, or never sent"),
    (
        ["purge", "orders"],
        2,
        "this would remove all ready, delayed, parked and prepared messages of orders: confirm with --yes",
    ),
    (["dead", "show", "orders", "x"], 1, "queue orders has no dead letter x"),
    (["dead", "list", "orders", "--after", "x"], 2, "after is 'x': give the `next` of the page before"),
    (["schedule", "pause", "x"], 1, "there is no schedule 'x': `reliq schedule list` shows all of them"),
    (
        ["worker", "shop.py:app"],
        2,
        "'shop.py:app' is not MODULE:APP: write a module as in `import`, e.g. shop.tasks:app",
    ),
    (["queue", "purge", "orders", "--all"], 2, "there is no option '--all': `reliq queue purge --help` lists them"),
    (["queue", "stats", "--wach"], 2, "there is no option '--wach': did you mean '--watch'?"),
    (["queue", "partitions", "orders", "4"], 2, "'4' is one argument too many"),
    (["queue", "config"], 2, "the following arguments are required: queue"),
    (["--url", "redis://x", "stats"], 2, "the options of a command stand after it: reliq COMMAND --url"),
    (["dead", "redrive", "orders", "x"], 1, "queue orders has no dead letter x"),
    (["dead", "purge", "orders", "--yes"], 2, "purging dead letters needs ids, a filter, or --all"),
    (
        ["dead", "purge", "orders", "--older-than", "3x"],
        2,
        'older_than is \'3x\': write seconds, or a number and a unit such as "90s" or "1h"',
    ),
    (["delayed", "run", "orders"], 2, "running delayed messages needs ids, a filter, or --all"),
    (["delayed", "run", "orders", "x", "y"], 1, "queue orders has no delayed message for 2 of the 2 ids"),
    (["delayed", "run", "orders", "x"], 1, "queue orders has no delayed message x"),
    (["send", "orders", "x", "--ttl", "0"], 2, "ttl is '0': it must be between 1 ms and 366 days"),
    (
        ["schedule", "add", "n", "every monday", "orders", "x"],
        2,
        (
            "'every monday' is neither a cron expression nor an interval from 1 s to 366 days: write five fields "
            "(minute hour day month weekday) such as '*/5 * * * *', or an interval such as '30s'"
        ),
    ),
    (["worker", "json:dumps"], 2, "module 'json' has a function, not a reliq.Reliq, as 'dumps': give MODULE:APP"),
]


@pytest.mark.parametrize(("arguments", "status", "says"), COMMANDS, ids=[" ".join(one) for one, *_ in COMMANDS])
def test_on_the_command_line(app, monkeypatch, arguments, status, says):
    monkeypatch.setenv("RELIQ_URL", app.url)  # `reliq worker` sets it, for its children
    app.queue("orders").send("x")
    done = run(*arguments, url=app.url)
    said = done.stderr.splitlines()[-1].removeprefix("reliq").partition(": ")[2].removeprefix("error: ")
    assert (said, done.returncode) == (says, status)
    assert len(done.stderr.splitlines()) == 1 or done.stderr.startswith("usage: ")


@pytest.mark.parametrize("input", [None, "{bad"], ids=["argument", "standard input"])
def test_a_body_that_begins_like_json_and_is_not_json(app, input):
    done = run("send", "orders", *(["{bad"] if input is None else []), input=input, url=app.url)
    assert done.stderr == (
        "reliq: the body begins like JSON, but was sent as text: object keys must be strings (byte 1)\n"
    )
    assert (done.returncode, app.queue("orders").stats().ready) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["message", "signal", "orders", "order-1", "approval"], "value"),
        (["message", "publish", "order.new"], "body"),
        (["schedule", "add", "daily", "1d", "orders"], "body"),
    ],
)
def test_what_else_begins_like_json_and_is_not_json(app, arguments, what):
    app.subscribe("orders", "order.new")
    done = run(*arguments, "{bad", url=app.url)
    assert (done.stderr, done.returncode) == (
        f"reliq: the {what} begins like JSON, but was sent as text: object keys must be strings (byte 1)\n",
        0,
    )


@pytest.mark.parametrize(
    ("login", "says"),
    [
        ("", f"it needs a password, and the URL has none: {ESCAPES}"),
        (
            ":wrong@",
            (
                "the password or the user name in the URL is wrong (a server that needs no password has no user but "
                f'"default"): {ESCAPES}'
            ),
        ),
    ],
    ids=["no password", "wrong password"],
)
def test_a_password_that_is_missing_or_wrong(guarded, monkeypatch, login, says):
    give_up_soon(monkeypatch)
    done = run("stats", url=guarded.replace("//", f"//{login}"))
    assert (done.stderr, done.returncode) == (f"reliq: Redis refuses: {says}\n", 1)


@pytest.mark.parametrize("more", [[], ["--processes", "2"]], ids=["one process", "two processes"])
def test_a_worker_that_redis_refuses_says_so_once_and_ends(guarded, tmp_path, more):
    (tmp_path / "refused.py").write_text(
        "import reliq\n\napp = reliq.Reliq()\napp.handler('orders')(lambda message: None)\n"
    )
    with process("worker", "refused", *more, folder=tmp_path, RELIQ_URL=guarded.replace("//", "//:wrong@")) as child:
        assert child.wait(60) == 1
        (line,) = child.stderr.read().decode().splitlines()
    assert line.startswith("reliq: Redis refuses: the password or the user name in the URL is wrong")
