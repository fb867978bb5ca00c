"""Passwords of special characters in every form of URL, by real servers; and who sees them in the list of processes."""

import asyncio
import subprocess
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
import redis

import reliq
from reliq import aio
from reliq.cli.child_settings import CHILD
from reliq.embedded import EmbeddedRedis, find_server
from reliq.errors import RedisUnavailable, RedisUnsuitable, ReliqError
from reliq.transport.target import Target
from tests.integration.api.serving import serving
from tests.support.ports import free_port
from tests.support.workers import ROOT, eventually, process

PASSWORD = "p/a@s#s%:?&=+"
ESCAPED = quote(PASSWORD, safe="")


@pytest.fixture
def guarded():
    with EmbeddedRedis() as server:
        with redis.Redis(port=server.port) as client:
            client.config_set("requirepass", PASSWORD)
            client.config_set("masterauth", PASSWORD)
        yield server


@pytest.fixture
def sentinel(guarded, tmp_path):
    """The port of a sentinel with a password of its own, that watches the server."""
    port = free_port()
    (tmp_path / "sentinel.conf").write_text(
        f'port {port}\nbind 127.0.0.1\nrequirepass "own {PASSWORD}"\n'
        f'sentinel monitor mymaster 127.0.0.1 {guarded.port} 1\nsentinel auth-pass mymaster "{PASSWORD}"\n'
    )
    command = [find_server(), str(tmp_path / "sentinel.conf"), "--sentinel"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def knows_its_master():
        try:
            with redis.Redis(port=port, password=f"own {PASSWORD}") as client:
                return client.info("sentinel")["master0"]["status"] == "ok"
        except redis.RedisError:
            return False

    try:
        eventually(knows_its_master)
        yield port
    finally:
        child.kill()
        child.wait()


def send_by_threads(url):
    with reliq.Reliq(url, send_timeout=2) as app:
        app.queue("q").send(1)


def send_by_asyncio(url):
    async def send():
        async with aio.Reliq(url, send_timeout=2) as app:
            await app.queue("q").send(1)

    asyncio.run(send())


def send_by_both(url):
    send_by_threads(url)
    send_by_asyncio(url)


@pytest.mark.parametrize(
    "form",
    ["redis://:{}@127.0.0.1:{port}/0", "redis://default:{}@127.0.0.1:{port}", "redis://127.0.0.1:{port}/0?password={}"],
)
def test_a_password_of_special_characters_is_escaped(guarded, form):
    send_by_both(form.format(ESCAPED, port=guarded.port))


@pytest.mark.parametrize("send", [send_by_threads, send_by_asyncio])
def test_a_socket_wants_a_password_too(tmp_path, send):
    place = tmp_path / "redis.sock"
    with EmbeddedRedis(settings=("--unixsocket", str(place))):
        with redis.Redis(unix_socket_path=str(place)) as client:
            client.config_set("requirepass", PASSWORD)
        send(f"unix://:{ESCAPED}@{place}")
        for login, query, says in ((":wrong@", "", "password .* wrong"), (f":{ESCAPED}@", "?db=99", "the database")):
            with pytest.raises(RedisUnsuitable, match=says):
                send(f"unix://{login}{place}{query}")


def test_sentinel_and_server_have_passwords_of_their_own(sentinel):
    login = f"sentinel_password={quote('own ' + PASSWORD, safe='')}"
    send_by_both(f"redis+sentinel://:{ESCAPED}@127.0.0.1:{sentinel}/mymaster/0?{login}")
    send_by_both(f"redis+sentinel://127.0.0.1:{sentinel}/mymaster?password={ESCAPED}&{login}")


def test_the_login_that_a_sentinel_wants_is_named(sentinel):
    for query in ("", "?sentinel_password=wrong"):
        with pytest.raises(RedisUnavailable, match=r"that of the sentinels is .*sentinel_password="):
            send_by_both(f"redis+sentinel://:{ESCAPED}@127.0.0.1:{sentinel}/mymaster{query}")


def test_a_wrong_password_is_told_without_it(guarded, sentinel):
    for url in (
        f"redis://:{ESCAPED}x@127.0.0.1:{guarded.port}",
        f"redis+sentinel://:{ESCAPED}@127.0.0.1:{sentinel}/mymaster?sentinel_password={ESCAPED}x",
    ):
        with pytest.raises(ReliqError) as caught:
            send_by_both(url)
        assert "p/a@s" not in str(caught.value)
        assert ESCAPED not in str(caught.value)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("url", "address"),
    [
        (f"redis://u:{ESCAPED}@h/2", ("h", 6379)),
        (f"rediss://u:{ESCAPED}@[::1]:7/2?ssl_ca_certs=/ca.pem", ("::1", 7)),
        (f"redis+cluster://u:{ESCAPED}@h:1,h:2", ("h", 9)),
        (f"rediss+cluster://h:1?username=u&password={ESCAPED}", ("h", 9)),
        (f"unix:///run/r.sock?username=u&password={ESCAPED}", "/run/r.sock"),
    ],
)
def test_every_form_logs_in(url, address, is_async):
    target = Target(url)
    made = target.factory(aio=is_async, node=("h", 9) if target.seeds else None)()
    assert (made.username, made.password) == ("u", PASSWORD)
    assert address == (made.path if isinstance(address, str) else (made.host, made.port))
    assert type(made).__name__.startswith("SSL") == url.startswith("rediss")


def test_the_processes_of_a_worker_have_no_password_on_their_command_lines_or_in_their_settings(guarded, tmp_path):
    (tmp_path / "shop.py").write_text(
        "import reliq\napp = reliq.Reliq()\n\n@app.handler('q')\ndef handle(message): ...\n"
    )
    (tmp_path / "url").write_text(guarded.url.replace("//", f"//:{ESCAPED}@"))
    arguments = ("worker", "shop:app", "--processes", "2", "--url", f"file:{tmp_path}/url")
    paths = ":".join(map(str, (ROOT, ROOT / "monitor", ROOT / "api", tmp_path)))
    with process(*arguments, folder=tmp_path, PYTHONPATH=paths) as child:
        children = eventually(lambda: workers_of(child.pid))
        lines = [Path(f"/proc/{one.pid}/cmdline").read_text() for one in (psutil.Process(child.pid), *children)]
        lines += [one.environ()[CHILD] for one in children]
        app = reliq.Reliq(f"file:{tmp_path}/url")
        app.queue("q").send_many(range(10))
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 10)
        app.close()
    assert not [line for line in lines if ESCAPED in line or "p/a@s" in line]


def workers_of(pid):
    children = psutil.Process(pid).children(recursive=True)
    found = [one for one in children if one.cmdline()[-2:] == ["worker", "shop:app"]]
    return found if len(found) == 2 else None


def test_neither_the_service_nor_its_pages_nor_its_log_show_the_password(guarded, caplog):
    app = reliq.Reliq(guarded.url.replace("//", f"//:{ESCAPED}@"))
    app.queue("q").send(1)
    shown = ""
    with serving(app.url, send_timeout=0.3) as client:
        paths = (
            "/",
            "/queues/q",
            "/topics",
            "/v1/queues",
            "/v1/queues/q",
            "/metrics",
            "/healthz",
            "/readyz",
            "/openapi.json",
        )
        shown += "".join(client.get(path).text for path in paths)
        with redis.Redis(port=guarded.port, password=PASSWORD) as admin:
            admin.config_set("requirepass", "another")
            admin.client_kill_filter(_type="normal")
        shown += "".join(client.get(path).text for path in paths)
        guarded.kill()
        shown += "".join(client.get(path).text for path in paths)
        answer = client.post("/v1/queues/q/messages", json={"body": 1})
        assert answer.status_code == 503
        shown += answer.text
    app.close()
    for secret in (PASSWORD, ESCAPED, "p/a@s"):
        assert secret not in shown
        assert secret not in caplog.text
