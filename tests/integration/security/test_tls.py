"""TLS with client certificates, by a real redis-server; the certificates are made with openssl."""

import asyncio
import contextlib
import shutil
import subprocess

import pytest

import reliq
from reliq import aio
from reliq.embedded import find_server
from reliq.errors import InvalidSetting, RedisUnavailable
from reliq.ops import server_time
from reliq.transport.store import Store
from tests.support.ports import free_port
from tests.support.workers import Child, eventually, working

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def authority(folder, name):
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip


def certificate(folder, name, signer):
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{signer}.pem", "-CAkey", f"{signer}.key",
            "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{name}.pem")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two authorities; the server and a client of the first, a stranger of the second."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ca", "other"):
        authority(folder, name)
    for name, signer in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
        certificate(folder, name, signer)
    openssl(folder, "ec", "-in", "client.key", "-aes256", "-passout", "pass:secret", "-out", "locked.key")
    shutil.copy(folder / "client.pem", folder / "locked.pem")
    return folder


@pytest.fixture(scope="module")
def port(folder):
    port = free_port()
    server: Child[bytes] = Child(
        [find_server(), "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1", "--dir", str(folder),
         "--save", "", "--maxmemory-policy", "noeviction", "--tls-ca-cert-file", "ca.pem",
         "--tls-cert-file", "server.pem", "--tls-key-file", "server.key", "--tls-auth-clients", "yes",
         "--user", "worker", "on", ">p/w@1", "~*", "&*", "+@all"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        eventually(lambda: server.poll() is not None or b"Ready to accept" in server.stdout.readline())
        if server.poll() is not None:
            why = server.stdout.read()
            assert b"Bad directive" in why, why
            pytest.skip("this redis-server is built without TLS")
        yield port
    finally:
        server.kill()
        server.communicate()


def url(folder, port, client="client", ca="ca", host="localhost", more=""):
    certificate = f"&ssl_certfile={folder}/{client}.pem&ssl_keyfile={folder}/{client}.key" if client else ""
    return f"rediss://worker:p%2Fw%401@{host}:{port}/0?ssl_ca_certs={folder}/{ca}.pem{certificate}{more}"


def test_messages_are_sent_and_handled_with_a_client_certificate(folder, port):
    app, done = reliq.Reliq(url(folder, port)), []
    app.handler("sync")(lambda message: done.append(message.json()))
    with working(app, monitor=True):
        app.queue("sync").send(1)
        eventually(lambda: done == [1])
    app.close()


async def one_message(url):
    async with aio.Reliq(url) as app:
        await app.queue("async").send(1)
        async with app.queue("async").consumer() as consumer:
            (message,) = await consumer.claim(1, wait=5)
            await consumer.ack(message)


def test_asyncio_with_a_client_certificate(folder, port):
    asyncio.run(one_message(url(folder, port)))


def send(app):
    sent = app.queue("refused").send(1)
    if isinstance(app, aio.Reliq):
        asyncio.run(sent)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"client": ""}, r"\?ssl_certfile="),
        ({"client": "stranger"}, r"\?ssl_certfile="),
        ({"client": "locked"}, "ssl_password"),
        ({"ca": "other"}, r"\?ssl_ca_certs="),
        ({"host": "127.0.0.1"}, r"use a host name that it has, or \?ssl_check_hostname=false"),
        ({"ca": "nowhere"}, "a file that the URL names is not there: ssl_ca_certs"),
    ],
    ids=["no certificate", "a stranger's", "no password", "another authority", "another name", "no file"],
)
@pytest.mark.parametrize("make", [reliq.Reliq, aio.Reliq], ids=["sync", "asyncio"])
def test_without_the_right_certificates_nothing_is_sent(folder, port, make, wrong, says):
    app = make(url(folder, port, **wrong), send_timeout=0.3)
    with pytest.raises(RedisUnavailable, match=says) as caught:
        send(app)
    assert "p/w@1" not in str(caught.value)
    good = reliq.Reliq(url(folder, port))
    assert good.queue("refused").stats().ready == 0
    good.close()


def test_the_name_need_not_be_checked(folder, port):
    app = reliq.Reliq(url(folder, port, host="127.0.0.1", more="&ssl_check_hostname=false"))
    app.queue("named").send(1)
    app.close()


def test_a_key_with_a_password(folder, port):
    app = reliq.Reliq(url(folder, port, client="locked", more="&ssl_password=secret"))
    app.queue("locked").send(1)
    app.close()


def test_a_connection_that_another_thread_interrupts_keeps_its_tls(folder, port):
    """What its own thread is about to send would go out without it."""
    with contextlib.closing(Store(url(folder, port))) as store:
        connection = store.connection()
        connection.perform(server_time())
        connection.interrupt()
        assert connection.socket.version().startswith("TLS")
        connection.close()


def test_an_option_that_is_none_is_refused(folder, port):
    with pytest.raises(InvalidSetting, match="an option other than"):
        reliq.Reliq(url(folder, port, more="&ssl_ca=/etc/ca.pem"))


@pytest.fixture(scope="module")
def sentinel_port(folder, port):
    """A sentinel that speaks TLS only, and names the server by its host name."""
    sentinel_port = free_port()
    (folder / "sentinel.conf").write_text(
        f"port 0\ntls-port {sentinel_port}\nbind 127.0.0.1\ndir {folder}\ntls-replication yes\n"
        "tls-ca-cert-file ca.pem\ntls-cert-file server.pem\ntls-key-file server.key\ntls-auth-clients yes\n"
        "sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n"
        f"sentinel monitor mymaster localhost {port} 1\n"
        "sentinel auth-user mymaster worker\nsentinel auth-pass mymaster p/w@1\n"
    )
    sentinel: Child[bytes] = Child(
        [find_server(), "sentinel.conf", "--sentinel"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        eventually(lambda: sentinel.poll() is not None or b"+monitor master" in sentinel.stdout.readline())
        assert sentinel.poll() is None, sentinel.stdout.read()
        yield sentinel_port
    finally:
        sentinel.kill()
        sentinel.communicate()


def sentinel_url(folder, port, more):
    return url(folder, port, more=more).replace("rediss://", "rediss+sentinel://").replace("/0?", "/mymaster/0?")


@pytest.mark.parametrize("face", [reliq.Reliq, aio.Reliq])
def test_sentinels_that_speak_tls_only(folder, sentinel_port, face):
    with contextlib.closing(reliq.Reliq(sentinel_url(folder, sentinel_port, "&sentinel_tls=true"))) as app:
        if face is aio.Reliq:
            asyncio.run(one_message(app.url))
        else:
            app.queue("sentinel").send(1)
            assert app.queue("sentinel").stats().ready == 1


def test_sentinels_that_speak_tls_are_named_as_such(folder, sentinel_port):
    app = reliq.Reliq(sentinel_url(folder, sentinel_port, ""), send_timeout=0.1)
    with contextlib.closing(app), pytest.raises(RedisUnavailable, match=r"no sentinel answers: .* \?sentinel_tls=true"):
        app.queue("sentinel").send(1)
