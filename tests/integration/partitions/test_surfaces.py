"""Every read of the HTTP API, of the dashboard and of the command line, while a part of a cluster is away.

An answer is the one that was given before, or it names what does not answer. None is an error of the service.
"""

import contextlib
import functools
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import redis

import reliq
from reliq.cli.main import main
from reliq.model.keys import QUEUES
from reliq.ops.topology import slot_of
from tests.integration.api.serving import Service, serving
from tests.integration.api.test_access_matrix import IN_PATHS, ROWS
from tests.integration.ui.dying import bury
from tests.support.cluster import Cluster
from tests.support.crash import crash
from tests.support.workers import eventually

PLAIN = [f"plain{number}" for number in range(6)]  #: queues, some on each node
#: They ask no queue, for what is not there, or by the time of day.
LEFT_OUT = ("/assets/", "/openapi.json", "/healthz", "/readyz", "/leases/", "/redrives/", "/preview")
COMMANDS = (
    "queue stats", "queue stats orders plain0 plain1 plain2", "queue config orders", "queue partitions orders",
    "queue audit", "queue audit orders", "message find {id}", "message find unknown", "message search orders body",
    "message cancel orders --key none --dry-run", "parked list orders", "batch list", "batch list {batch}", "flow list",
    "flow show {flow}", "topic list", "topic test new.order", "schedule list", "delayed list orders",
    "dead list orders", "dead show orders {letter}", "dead redrive orders --all --dry-run", "worker list", "key list",
    "doctor", "top --once --interval 0.1",
)  # fmt: skip
PLOT = re.compile(r"<svg.*?</svg>|<span class=.gathering.*?</span>", re.DOTALL)  #: of what was read before, too
#: In one or two units: 45 s, 1 min 20 s.
AGE = re.compile(r"(&lt;)?\b\d+(\.\d+)? ?(ms|us|min|[smhd])\b( \d+ (min|[smh])\b)?|<time .*</time>")
#: Findings of the doctor that depend on how busy the machine is.
MEASURED = re.compile(r"^\w+ +(?:recovery|disk|memory|clock|latency) .*\n(?: .*\n)*", re.MULTILINE)
NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]\d+)?")


@dataclass(frozen=True)
class Said:
    """What a surface has answered, line by line. `error`: it has failed in a way that it never may."""

    lines: list[str]
    error: bool = False


Ask = Callable[[], Said]


def http(service: Service, path: str, params: dict[str, str]) -> Said:
    answer = service.get(path, params=params, timeout=30)
    text = PLOT.sub("", answer.text).replace("><", ">\n<").replace(",", ",\n")
    return Said(text.splitlines(), answer.status_code in (500, 502, 504))


def shell(url: str, words: list[str]) -> Said:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main([*words, "--url", url])
    return Said(MEASURED.sub("", said.getvalue()).splitlines())


def world(app: reliq.Reliq) -> dict[str, str]:
    """Make some of every kind of thing, in queues of all nodes; return the names of some."""
    orders = app.queue("orders")
    orders.configure(partitions=6, track=True)
    letter, *_ = bury(app, "orders", ["bad"] * 6)
    app.subscribe("orders", "new.order")
    app.schedules.add("daily", "1d", "orders")
    for name in PLAIN:
        app.queue(name).send("body")
    orders.send_many(["body"] * 60)
    orders.send_many(["later"] * 12, delay=3600)
    with app.batch(on_done=("plain0", "done")) as batch:
        batch.send_many("orders", ["part"] * 12)
    with app.flow() as flow:
        flow.send("plain1", "second", after=[flow.send("orders", "first")])
    return {"id": orders.send("body"), "batch": batch.id, "flow": flow.id, "letter": letter}


@contextlib.contextmanager
def reading(url: str) -> Iterator[dict[str, Ask]]:
    """Each read of a Redis that this fills, by its name."""
    with reliq.Reliq(url) as app, serving(url) as service:
        names = IN_PATHS | world(app)
        asks: dict[str, Ask] = {}
        for call, row in ROWS.items():
            method, path = call.split(" ")
            if method == "GET" and not any(one in path for one in LEFT_OUT):
                params = {"id": names["id"], "text": "body"} if row.request else {}
                asks[call] = functools.partial(http, service, path.format(**names), params)
        for line in COMMANDS:
            asks[f"reliq {line}"] = functools.partial(shell, url, line.format(**names).split())
        yield asks


@pytest.fixture(scope="module")
def surfaces(cluster: Cluster) -> Iterator[dict[str, Ask]]:
    """Each read, by its name."""
    with reading(cluster.url) as asks:
        yield asks


@pytest.fixture(scope="module")
def before(surfaces: dict[str, Ask]) -> dict[str, tuple[Said, Said]]:
    """What each has answered twice while all nodes were there."""
    said = {name: (ask(), ask()) for name, ask in surfaces.items()}
    assert [name for name, two in said.items() for one in two if one.error] == []
    return said


@contextlib.contextmanager
def dead(cluster: Cluster, key: str) -> Iterator[list[str]]:
    """The node that has a key is dead; what its absence is named by."""
    server = cluster.master_of(key)
    crash(server)
    try:
        yield [f"127.0.0.1:{server.port}"]
    finally:
        server.start()
        eventually(cluster.whole, timeout=60)


@contextlib.contextmanager
def half_moved(cluster: Cluster, key: str) -> Iterator[list[str]]:
    """The slot of a key is being moved, and stays so: Redis refuses what needs keys of both nodes."""
    source = cluster.master_of(key)
    target = next(one for one in cluster.masters() if one is not source)
    with redis.Redis(port=source.port) as old, redis.Redis(port=target.port) as new:
        ends = {old: new.execute_command("CLUSTER", "MYID"), new: old.execute_command("CLUSTER", "MYID")}
        new.execute_command("CLUSTER", "SETSLOT", slot_of(key), "IMPORTING", ends[new])
        old.execute_command("CLUSTER", "SETSLOT", slot_of(key), "MIGRATING", ends[old])
        try:
            yield ["slots are moving", f"127.0.0.1:{source.port}", f'reliq_queue_unreadable{{queue="{key}"}} 1']
        finally:
            for client in ends:
                client.execute_command("CLUSTER", "SETSLOT", slot_of(key), "STABLE")


def is_same(first: list[str], second: list[str], now: list[str]) -> bool:
    """Whether an answer says what two earlier ones say, but for ages, and for numbers that differed between these."""
    if not len(first) == len(second) == len(now):
        return False
    return all(
        AGE.sub("", one) == AGE.sub("", last) or (one != other and NUMBER.sub("", one) == NUMBER.sub("", last))
        for one, other, last in zip(first, second, now, strict=True)
    )


def later(is_true: Callable[[str], bool], name: str) -> bool:
    """Whether a page that shows what was read a moment ago comes to be true."""
    return name.startswith("GET /") and "/v1/" not in name and bool(eventually(lambda: is_true(name), what=name))


# Each of the three nodes is dead once. In one test: the first of a process asks everything twice to know `before`.
@pytest.mark.long
@pytest.mark.parametrize(("fault", "keys"), [(dead, ("orders", QUEUES, "plain0")), (half_moved, ("orders", "plain0"))])
def test_each_answer_is_whole_or_names_what_is_away(cluster, surfaces, before, fault, keys):
    def is_true(name: str) -> bool:
        now = surfaces[name]()
        named = any(one in line for line in now.lines for one in missing)
        return not now.error and (named or is_same(*(one.lines for one in (*before[name], now))))

    for key in keys:
        with fault(cluster, key) as missing:
            assert [name for name in surfaces if not is_true(name) and not later(is_true, name)] == [], key
