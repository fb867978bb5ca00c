"""Redis URLs are read in one place, and nothing that is shown of them has a password in it."""

import json
import logging
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import reliq
import reliq.aio
from reliq.errors import InvalidSetting
from reliq.runtime.logging import JsonLines, Lines
from reliq.runtime.url import dereferenced, read_url, redacted
from reliq.transport.store import Store
from reliq.transport.target import Target
from reliq_api.settings import Settings
from tests.support.commands import give_up_soon, run

#: Long enough to be found, with all that means something in a URL.
PASSWORDS = st.text(st.sampled_from("abcXYZ789/@#%:?&=+,;![]~'\" \\é$*|{}"), min_size=8, max_size=24)

ESCAPED = [
    "redis://:{}@example.test:6379/0",
    "redis://user:{}@example.test/0",
    "rediss://user:{}@example.test:6379/0?ssl_cert_reqs=none",
    "redis://example.test:6379/0?password={}",
    "redis://example.test:6379?db=3&password={}",
    "redis+sentinel://user:{}@one.test:26379,two.test/mymaster/0",
    "redis+sentinel://one.test:26379/mymaster?password={}",
    "redis+sentinel://one.test:26379/mymaster/2?sentinel_password={}",
    "redis+cluster://:{}@one.test:6379,two.test:6379",
    "redis+cluster://one.test:6379?password={}",
    "unix://user:{}@/run/redis.sock?db=1",
    "unix:///run/redis.sock?password={}",
]
BROKEN = [
    "{}@example.test:6379",
    ":{}@example.test:6379/0",
    "user:{}@example.test",
    "redis:{}@example.test",
    "redis:/:{}@example.test",
    "http://user:{}@example.test",
    "redis://user:{}",
    "redis://:{}",
    "redis://example.test:port/0?password={}",
    "redis://example.test/zero?password={}",
    "redis+sentinel://:{}@example.test",
    "redis+cluster://:{}@[one.test:6379",
    "redis://:{}@one.test,two.test/0",
    "redis://example.test/0?{}",
    "redis://example.test/0?{}=1",
    "redis://example.test/0#{}",
]


def pieces(password: str) -> list[str]:
    """The password, and what is between its special characters: half of a password is a secret too."""
    between = "".join(one if one.isalnum() else " " for one in password).split()
    return [one for one in [password, quote(password, safe=""), *between] if len(one) > 3]


def told(url: str) -> str:
    """All that an application says when it is given this URL, and when it cannot reach the server there."""
    texts = []
    for make in (reliq.Reliq, reliq.aio.Reliq, Store, read_url):
        try:
            made = make(url)
            texts += [repr(made), str(made)]
            if isinstance(made, Store):
                texts += [made.where, repr(made._target)]
        except InvalidSetting as error:
            texts += [str(error), repr(error), repr(error.__cause__), repr(error.__context__)]
    return "\n".join(texts)


@settings(deadline=None)
@given(password=PASSWORDS, form=st.sampled_from(ESCAPED + BROKEN), raw=st.booleans())
@example(password="12/34@567", form="redis://user:{}@example.test/0", raw=True)
@example(password="p?db=45678", form="redis://user:{}@example.test/0", raw=True)
@example(password="1234#5678", form="redis://user:{}@example.test/0", raw=True)
def test_no_password_is_in_an_error_or_a_repr(password, form, raw):
    url = form.format(password if raw else quote(password, safe=""))
    text = told(url)
    assert not [piece for piece in pieces(password) if piece in text], text


@settings(deadline=None)
@given(PASSWORDS, st.sampled_from(ESCAPED))
def test_an_escaped_password_is_read_as_it_was(password, form):
    url = read_url(form.format(quote(password, safe="")))
    assert password in (url.password, url.sentinel_login.get("password"))
    assert url.username in (None, "user")


@pytest.mark.parametrize("password", ["a/b", "a#b", "a%b", "a?b", "100%"])
@pytest.mark.parametrize("form", [ESCAPED[0], ESCAPED[5], ESCAPED[8]])
def test_a_password_that_is_not_escaped_is_explained(password, form):
    with pytest.raises(InvalidSetting, match=r"write / as %2F, [?] as %3F, # as %23, @ as %40"):
        read_url(form.format(password))


@pytest.mark.parametrize("password", ["a@b", "a:b", "a+b", "a=b&c", "a b", "a,b"])
def test_characters_that_are_not_ambiguous_need_no_escape(password):
    assert read_url(f"redis://user:{password}@example.test/0").password == password


@pytest.mark.parametrize(
    ("text", "nodes", "database", "shown"),
    [
        ("redis://", [("localhost", 6379)], 0, "redis://"),
        ("redis://:pw@", [("localhost", 6379)], 0, "redis://"),
        ("redis://u:pw@h:1/2?password=other", [("h", 1)], 2, "redis://h:1/2"),
        ("redis://h?db=4", [("h", 6379)], 4, "redis://h"),
        ("redis://u:p@[::1]:7000/0", [("::1", 7000)], 0, "redis://[::1]:7000/0"),
        ("redis://u:p@[::1]/0", [("::1", 6379)], 0, "redis://[::1]/0"),
        ("redis+sentinel://a:1,b/m/3", [("a", 1), ("b", 6379)], 3, "redis+sentinel://a:1,b/m/3"),
        ("redis+cluster://a:1,b:2/3", [("a", 1), ("b", 2)], 3, "redis+cluster://a:1,b:2/3"),
        ("redis+cluster://u:p@a:1,b:2", [("a", 1), ("b", 2)], 0, "redis+cluster://a:1,b:2"),
        (" redis://h/0\n", [("h", 6379)], 0, "redis://h/0"),
    ],
)
def test_what_a_url_says(text, nodes, database, shown):
    url = read_url(text)
    assert (url.hosts(6379), url.database, url.shown) == (nodes, database, shown)


def test_a_socket_and_the_files_for_tls():
    assert read_url("unix:///run/redis%20a.sock?db=1").path == "/run/redis a.sock"
    url = read_url("rediss://h?ssl_ca_certs=/ca.pem&ssl_certfile=/c.pem&ssl_check_hostname=false")
    assert url.tls == {"ssl_ca_certs": "/ca.pem", "ssl_certfile": "/c.pem", "ssl_check_hostname": False}


@pytest.mark.parametrize("text", ["required", "CERT_REQUIRED", "Required"])
def test_the_check_of_certificates_has_the_names_of_redis_py_and_of_ssl(text):
    assert read_url(f"rediss://h?ssl_cert_reqs={text}").tls == {"ssl_cert_reqs": "required"}


@pytest.mark.parametrize("query", ["ssl_cert_reqs=never", "ssl_keyfile=/c.key"])
def test_tls_options_that_redis_py_cannot_use_are_refused(query):
    with pytest.raises(InvalidSetting, match=query.partition("=")[0]):
        read_url(f"rediss://h?{query}")


@pytest.mark.parametrize("scheme", ["redis", "redis+sentinel", "redis+cluster"])
def test_tls_options_without_tls_are_refused(scheme):
    with pytest.raises(InvalidSetting, match="begins with rediss"):
        read_url(f"{scheme}://h/0?ssl_ca_certs=/ca.pem")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rediss+sentinel://h/m?sentinel_tls=maybe", "neither true nor false"),
        ("redis+sentinel://h/m?sentinel_tls=true", "for rediss\\+sentinel"),
        ("rediss://h?sentinel_tls=true", "for rediss\\+sentinel"),
    ],
)
def test_sentinels_speak_tls_only_where_the_master_does(text, says):
    with pytest.raises(InvalidSetting, match=says):
        read_url(text)


def test_sentinels_speak_tls_if_the_url_says_so():
    urls = ("rediss+sentinel://h/m?sentinel_tls=True", "rediss+sentinel://h/m?sentinel_tls=no", "rediss+sentinel://h/m")
    assert [read_url(one).sentinel_tls for one in urls] == [True, False, False]


@pytest.mark.parametrize("text", [None, 7, b"redis://:hunter2@h"])
def test_what_is_no_text_is_not_shown(text):
    with pytest.raises(InvalidSetting, match="give a text") as caught:
        read_url(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at redis://u:hunter2@h:1/0: away", "at redis://h:1/0: away"),
        ("redis://h/0?password=hunter2, then", "redis://h/0, then"),
        ("redis+sentinel://h/m?sentinel_password=hunter2", "redis+sentinel://h/m"),
        ("redis://:hunter2/x@h/0", "redis://..."),
        ("postgresql://u:hunter2@h/shop", "postgresql://h/shop"),
        ("https://h/?user=a&token=hunter2&b=1", "https://h/?user=a&token=***&b=1"),
        ("see https://h/a?b=1 and a@b", "see https://h/a?b=1 and a@b"),
    ],
)
def test_urls_in_other_texts_lose_their_passwords(text, shown):
    assert redacted(text) == shown
    record = logging.LogRecord("reliq", logging.WARNING, "", 0, "it says url=%s", (text,), None)
    for formatter in (Lines(), JsonLines()):
        assert "hunter2" not in formatter.format(record)


def test_a_reference_is_replaced_by_the_url_it_names(tmp_path, monkeypatch):
    (tmp_path / "url").write_text("redis://:pw@h/1\n")
    monkeypatch.setenv("SHOP_REDIS", "redis://:pw@h/2")
    monkeypatch.setenv("RELIQ_URL", f"file:{tmp_path}/url")
    assert dereferenced("env:SHOP_REDIS") == "redis://:pw@h/2"
    assert dereferenced("conf:a.b", {"a.b": "redis://:pw@h/3"}) == "redis://:pw@h/3"
    assert dereferenced("redis://h") == "redis://h"
    assert reliq.Reliq().url == "redis://:pw@h/1"


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("env:NOT_SET", "no such environment variable"),
        ("file:/not/there", "No such file"),
        ("file:/", "Is a directory"),
        ("conf:not.set", "no such Spark configuration entry"),
    ],
)
def test_a_reference_that_leads_nowhere_is_named(reference, problem):
    with pytest.raises(InvalidSetting, match=problem) as caught:
        dereferenced(reference, {})
    assert reference in str(caught.value)


def test_conf_is_for_spark_only():
    with pytest.raises(InvalidSetting, match="an unknown scheme"):
        reliq.Reliq("conf:a.b")


def test_the_settings_of_the_http_service_show_no_url():
    assert "hunter2" not in repr(Settings(url="redis://:hunter2@h"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "--json", "--url", "redis://u:hunter2@127.0.0.1:1/0?password=hunter2"),
        ("stats", "--json", "--url", "redis://u:hunter2@127.0.0.1:1/0"),
        ("stats", "--url", "redis://u:hunter2/x@127.0.0.1:1/0"),
        ("stats", "--url", ":hunter2@127.0.0.1:1"),
        ("stats", "redis://u:hunter2@127.0.0.1:1/0", "more"),
        ("redis://u:hunter2@127.0.0.1:1/0",),
    ],
)
def test_the_command_line_prints_no_password(arguments, monkeypatch):
    give_up_soon(monkeypatch)
    done = run(*arguments)
    assert done.returncode
    assert "hunter2" not in done.stdout + done.stderr
    if "--json" in arguments and done.stdout:
        json.loads(done.stdout)


@pytest.mark.parametrize(
    ("url", "tried"),
    [
        ("redis://", "redis://localhost:6379"),
        ("redis://:secret@/2", "redis://localhost:6379/2"),
        ("rediss://:7000/1", "rediss://localhost:7000/1"),
        ("redis://shop", "redis://shop"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
    ],
)
def test_a_url_without_a_host_says_what_is_tried(url, tried):
    assert Target(url).where == tried
