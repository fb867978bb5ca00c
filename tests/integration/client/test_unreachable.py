"""A Redis that cannot be used says why: the port is refused, the host is unknown, the password is wrong."""

import socket
import ssl
import threading

import pytest
import redis

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.ops import command
from reliq.transport.errors import cause_of
from reliq.transport.store import Store
from tests.support.commands import give_up_soon, run
from tests.support.proxy import Counting
from tests.support.workers import eventually

ESCAPES = "with / ? # @ : % in it written as %2F %3F %23 %40 %3A %25"


@pytest.fixture
def anew(face):
    return lambda url: face(url, send_timeout=0.1)


@pytest.fixture(scope="module")
def server():
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def guarded(server):
    """A server that wants the password `secret`."""
    with_password = server.url.replace("//", "//:secret@")
    store = Store(server.url)
    store.call(command("CONFIG", "SET", "requirepass", "secret"))
    store.close()
    yield server.url
    store = Store(with_password)
    store.call(command("CONFIG", "SET", "requirepass", ""))
    store.close()


@pytest.fixture
def hanging_up():
    """The URL of a server that closes each connection as soon as it is made."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up():
            while True:
                try:
                    listening.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        yield f"redis://127.0.0.1:{listening.getsockname()[1]}/0"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("redis://127.0.0.1:1/0", "connection refused"),
        ("rediss://127.0.0.1:1/0", "connection refused"),
        ("redis+cluster://127.0.0.1:1", "connection refused"),
        ("redis://no-such-host.invalid:6379/0", "the host name cannot be resolved: "),
        ("unix:///no/such/redis.sock", "no such file or directory"),
        ("redis+sentinel://127.0.0.1:1/mymaster", "no sentinel answers: connection refused"),
    ],
)
def test_a_redis_that_cannot_be_reached_says_why(anew, url, cause):
    with pytest.raises(reliq.RedisUnavailable) as caught:
        anew(url).queue("q").send("x")
    assert f"Redis at {url} cannot be reached ({cause}" in str(caught.value)


def refusal(app):
    """What a send says."""
    with pytest.raises(reliq.ReliqError) as caught:
        app.queue("q").send("x")
    return str(caught.value)


def test_a_server_that_has_reached_its_maxclients_says_so(anew, server):
    with redis.Redis.from_url(server.url) as other:
        other.config_set("maxclients", 1)
        try:  # the line that says so is lost where the answer to what we send is that the connection is closed
            eventually(lambda: "it has reached its maxclients" in refusal(anew(server.url)))
        finally:
            other.config_set("maxclients", 1_000)


def test_a_first_send_takes_three_round_trips_and_one_that_loads_scripts(anew, server):
    with Counting(server.port) as proxy:
        anew(proxy.url).queue("q").send("x")
        assert proxy.trips <= 4


def test_a_proxy_whose_server_is_gone_has_sent_nothing(anew, hanging_up):
    app = anew(hanging_up)
    app.store.trust()  # no check before the first call, as on every connection but the first
    with pytest.raises(reliq.RedisUnavailable):
        app.queue("q").send("x")


def test_a_server_that_hangs_up_is_told_from_one_that_is_not_there(anew, hanging_up):
    said = ("closed the connection", "reset by peer", "no answer from")
    eventually(lambda: any(one in refusal(anew(hanging_up)) for one in said))


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect call failed"),
         "connection refused"),
        (OSError(113, "No route to host"), "no route to host"),
        (TimeoutError(), "timed out"),
        (redis.TimeoutError("Timeout connecting to server"), "timed out"),
        (ConnectionResetError("Connection lost"), "the server closed the connection"),
        (redis.ConnectionError("Connection closed by server."), "the server closed the connection"),
        (redis.ConnectionError("max number of clients reached"), "it has reached its maxclients"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"),
         "TLS: [SSL: WRONG_VERSION_NUMBER] wrong version number"),
    ],
)  # fmt: skip
def test_the_cause_is_the_reason_and_not_the_name_of_a_class(error, cause):
    assert cause_of(error) == cause


@pytest.mark.parametrize(
    ("login", "says"),
    [
        ("", "it needs a password, and the URL has none"),
        (":wrong@", "the password or the user name in the URL is wrong"),
        ("someone:secret@", "the password or the user name in the URL is wrong"),
    ],
)
def test_a_password_that_is_missing_and_one_that_is_wrong_are_told_apart(anew, guarded, login, says):
    with pytest.raises(reliq.RedisUnsuitable, match=says):
        anew(guarded.replace("//", f"//{login}")).queue("q").send("x")


def test_a_server_without_a_password_says_that_the_url_has_one(anew, server):
    with pytest.raises(reliq.RedisUnsuitable, match="it has no password, but the URL has one: remove it from the URL"):
        anew(server.url.replace("//", "//:secret@")).queue("q").send("x")


def test_a_user_name_for_a_server_without_a_password_says_which_user_such_a_server_has(anew, server):
    with pytest.raises(reliq.RedisUnsuitable, match='a server that needs no password has no user but "default"'):
        anew(server.url.replace("//", "//someone:secret@")).queue("q").send("x")


def test_a_database_that_the_server_does_not_have_is_named_as_the_cause(anew, server):
    with pytest.raises(reliq.RedisUnsuitable, match="it does not have the database at the end of the URL"):
        anew(server.url.removesuffix("/0") + "/99").queue("q").send("x")


@pytest.mark.parametrize("login", ["", ":wrong@"])
def test_the_hint_about_a_password_shows_its_place_in_the_url(guarded, monkeypatch, login):
    give_up_soon(monkeypatch)
    done = run("stats", url=guarded.replace("//", f"//{login}"))
    assert done.returncode == 1
    assert f'the URL has it between "redis://:" and "@host", {ESCAPES}' in done.stderr
    assert "wrong@" not in done.stderr


def test_a_cluster_with_a_wrong_password_is_not_called_a_single_server(anew, guarded):
    with pytest.raises(reliq.RedisUnsuitable, match="the password or the user name in the URL is wrong"):
        anew(guarded.replace("redis://", "redis+cluster://:wrong@").removesuffix("/0")).queue("q").send("x")


def test_a_send_that_cannot_reach_redis_raises_one_error_and_not_the_one_below_it(anew):
    with pytest.raises(reliq.RedisUnavailable, match="cannot be reached") as raised:
        anew("redis://localhost:1").queue("q").send("x")
    assert raised.value.__suppress_context__
