"""A master found through its sentinel, and a failover under a running worker."""

import contextlib
import re
import socket
import threading

import pytest

import reliq
from bench.sentinel import campaign
from reliq.cli.main import main
from reliq.embedded import EmbeddedRedis
from reliq.errors import RedisUnavailable
from reliq.ops import command
from reliq.transport.store import Store
from tests.support.commands import give_up_soon
from tests.support.ports import free_port
from tests.support.sentinels import SERVICE, sentinel
from tests.support.workers import eventually, working


@pytest.fixture
def master():
    with EmbeddedRedis(settings=("--repl-diskless-sync-delay", "0")) as server:
        yield server
        server.kill()  # stopped, it may wait ten seconds for the other one


@pytest.fixture
def replica(master):
    with EmbeddedRedis(settings=("--replicaof", "127.0.0.1", str(master.port))) as server:
        eventually(lambda: info(server)["master_link_status"] == "up")
        yield server
        server.kill()


@pytest.fixture
def sentinel_url(master, replica, tmp_path):
    """One sentinel that watches them, as a URL."""
    port = free_port()
    with sentinel(tmp_path, port, master.port, replicas=1):
        yield f"redis+sentinel://127.0.0.1:{port}/{SERVICE}/0"


def info(server):
    store = Store(server.url)
    store._checked = True
    answer = store.call(command("INFO", "replication")).decode()
    store.close()
    return dict(line.split(":", 1) for line in answer.splitlines() if ":" in line)


def test_the_master_is_found_through_its_sentinel(face, sentinel_url, master):
    face(sentinel_url).queue("q").send("x")
    assert face(master.url).queue("q").stats().ready == 1


@pytest.mark.parametrize(
    ("scheme", "path", "says"),
    [
        ("redis+sentinel", "other", "no sentinel names a master of 'other'"),
        ("redis", "0", r"is a sentinel: use redis\+sentinel://"),
    ],
)
def test_what_is_wrong_with_the_url_of_a_sentinel(sentinel_url, scheme, path, says, capsys, monkeypatch):
    give_up_soon(monkeypatch)
    place = sentinel_url.split("/")[2]
    url = f"{scheme}://{place}/{path}"
    with reliq.Reliq(url, send_timeout=0.3) as app, pytest.raises(RedisUnavailable, match=says):
        app.queue("q").send("x")
    main(["doctor", "--url", url])
    assert re.search(says, capsys.readouterr().out)


def test_sentinels_that_do_not_speak_tls(sentinel_url):
    url = sentinel_url.replace("redis+", "rediss+") + "?sentinel_tls=true"
    says = r"must not have \?sentinel_tls"
    with reliq.Reliq(url, send_timeout=0.3) as app, pytest.raises(RedisUnavailable, match=says):
        app.queue("q").send("x")


def test_redis_servers_in_place_of_the_sentinels(master):
    url = f"redis+sentinel://127.0.0.1:{master.port}/mymaster"
    with reliq.Reliq(url, send_timeout=0.3) as app, pytest.raises(RedisUnavailable, match="it is no sentinel"):
        app.queue("q").send("x")


def test_a_failover_under_a_running_worker_loses_nothing_that_was_replicated(sentinel_url, master, replica):
    app, handled = reliq.Reliq(sentinel_url, send_timeout="30s"), []
    app.handler("q")(lambda message: handled.append(message.json()))
    queue = app.queue("q")
    queue.pause()
    queue.send_many(range(300))
    eventually(lambda: info(replica)["slave_repl_offset"] == info(master)["master_repl_offset"])
    with working(app, monitor=True):
        eventually(lambda: queue.stats().consumers == 1)
        master.kill()
        eventually(lambda: info(replica)["role"] == "master", timeout=40)
        queue.resume()
        queue.send_many(range(300, 600))
        eventually(lambda: set(handled) == set(range(600)), timeout=60)
    app.close()


class Sentinel:
    """Answers the two questions about a master as a sentinel does; `state` may be changed."""

    def __init__(self, epoch, port, former=None, flags="master"):
        self.state = (epoch, port, former or port, flags)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.node = self._server.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(4096):
                epoch, port, former, flags = self.state
                fields = ("ip", "127.0.0.1", "port", former, "flags", flags, "config-epoch", epoch)
                answers = {b"CLIENT": "+OK\r\n", b"MASTER": array(fields), b"GET-MASTER": array(("127.0.0.1", port))}
                words = re.findall(rb"\r\n(CLIENT|MASTER|GET-MASTER)(?:-ADDR-BY-NAME)?\r\n", data)
                connection.sendall("".join(answers[word] for word in words).encode())

    def close(self):
        self._server.close()


def array(words):
    return f"*{len(words)}\r\n" + "".join(f"${len(str(word))}\r\n{word}\r\n" for word in words)


@pytest.fixture
def sentinels():
    """A function that makes sentinels of so many epochs and ports, and what reliq makes of them."""
    with contextlib.ExitStack() as stack:

        def make(*states):
            made = [stack.enter_context(contextlib.closing(Sentinel(*state))) for state in states]
            hosts = ",".join(f"127.0.0.1:{one.node[1]}" for one in made)
            store = stack.enter_context(contextlib.closing(Store(f"redis+sentinel://{hosts}/mymaster")))
            return made, store

        yield make


def test_the_sentinel_with_the_highest_epoch_is_believed(sentinels):
    _, store = sentinels((3, 1111), (4, 2222), (3, 1111))
    eventually(lambda: store.sentinels.master() == ("127.0.0.1", 2222))


def test_connections_are_made_anew_when_another_server_becomes_the_master(sentinels):
    made, store = sentinels((3, 1111), (3, 1111), (3, 1111))
    assert store.sentinels.master() == ("127.0.0.1", 1111)
    epoch = store.epoch
    made[1].state = (4, 2222, 2222, "master")
    eventually(lambda: store.epoch > epoch)
    assert store.sentinels.master() == ("127.0.0.1", 2222)


def test_a_master_is_vouched_for_while_no_failover_is_under_way(sentinels, monkeypatch):
    monkeypatch.setattr("reliq.transport.sentinel._HEIR", 0.01)
    made, store = sentinels((3, 1111), (3, 1111), (3, 1111))
    old, new = ("127.0.0.1", 1111), ("127.0.0.1", 2222)
    assert store.sentinels.master() == old
    assert store.sentinels.vouch(old)
    made[2].state = (3, 1111, 1111, "master,failover_in_progress")  # its heir is not known yet
    assert not store.sentinels.vouch(old)
    made[2].state = (4, 2222, 1111, "master,failover_in_progress")  # it is; the other replicas are being told
    assert not store.sentinels.vouch(old)
    assert store.sentinels.vouch(new)


def test_without_most_of_the_sentinels_none_is_vouched_for(sentinels):
    made, store = sentinels((3, 1111), (3, 1111), (3, 1111))
    store.sentinels.master()
    for one in made[:2]:
        one.state = ("not a number", 1111, 1111, "master")
    assert not store.sentinels.vouch(("127.0.0.1", 1111))


def test_each_sentinel_says_what_it_sees_or_why_it_does_not(sentinels):
    made, store = sentinels((3, 1111), (4, 2222), (3, 1111))
    made[2].state = ("not a number", 1111, 1111, "master")
    first, second, third = store.sentinels.views()
    assert (first, second) == ((made[0].node, ("127.0.0.1", 1111), 3, ""), (made[1].node, ("127.0.0.1", 2222), 4, ""))
    assert third.master is None
    assert third.problem


def test_the_doctor_names_a_sentinel_that_is_away(sentinel_url, capsys):
    away = f"127.0.0.1:{free_port()}"
    main(["doctor", "--url", sentinel_url.replace("//", f"//{away},")])
    assert f"1 of 2 name no master: {away} (" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["planned", "paused", "killed"])
def test_failovers_lose_nothing_that_was_answered_with_replicas(kind):
    found = campaign(kind, "replicas=1", failovers=5, replicas=2)
    assert found["lost"] == 0
    if kind == "planned":
        assert found["longest_gap_s"] <= 2
