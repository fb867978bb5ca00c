"""The page about topics."""

import re

import pytest
from playwright.sync_api import expect

from reliq_api.access import keyring

ATTACKS = ("<script>alert(1)</script>", '"><svg/onload=alert(2)>', "'onfocus=alert(3)/autofocus='")


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_a_queue_is_bound_tried_and_unbound(app, look, script):
    app.queue("mailer").send(1)
    page = look("/", java_script_enabled=script)
    page.get_by_role("link", name="Topics").click()
    expect(page.get_by_text("No queue is bound to a pattern.")).to_be_visible()
    page.get_by_role("textbox", name="Pattern").fill("order.*.eu")
    page.get_by_role("textbox", name="Queue").fill("mailer")
    page.get_by_role("button", name="Bind").click()
    expect(page.get_by_text("The queue is bound.")).to_be_visible()
    assert [tuple(one) for one in app.topics.list()] == [("mailer", "order.*.eu")]

    for key, said in (("order.created.eu", "reaches 1 queue"), ("order.created.us", "No queue would get")):
        page.get_by_label("Routing key").fill(key)
        page.get_by_role("button", name="Try").click()
        expect(page.locator("p[role=status]", has_text=said)).to_contain_text(key)

    page.get_by_role("button", name="Unbind mailer").click()
    expect(page.get_by_text("The binding is removed.")).to_be_visible()
    assert app.topics.list() == []
    assert app.queue("mailer").stats().ready == 1


def test_hostile_patterns_and_keys_are_text(app, look, address):
    for text in ATTACKS:
        app.subscribe("mailer", text)
    page = look("/topics")
    for text in ATTACKS:
        expect(page.get_by_role("rowheader", name=text, exact=True)).to_be_visible()
        page.get_by_label("Routing key").fill(text)
        page.get_by_role("button", name="Try").click()
        expect(page.get_by_label("Routing key")).to_have_value(text)
        expect(page.get_by_text("reaches 1 queue")).to_be_visible()
    assert page.locator("script:not([src]), svg[onload], [onfocus], [autofocus]").count() == 0


def test_what_nobody_got_is_counted_and_the_alternate_named(app, client):
    app.publish("order.created", 1)
    assert "So far, 1 message matched no pattern." in client.get("/topics").text
    app.topics.set_alternate("strays")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", client.get("/topics?key=any.key").text))
    assert "such messages go to strays" in text
    assert "any.key reaches 1 queue: strays" in text


@pytest.mark.parametrize(
    "form",
    [
        {}, {"queue": "mailer"}, {"queue": "", "pattern": "x"}, {"queue": "a b", "pattern": "x"}, {"pattern": "a#"},
        {"queue": "}x", "pattern": "x"}, {"queue": "mailer", "pattern": "a b"},
        {"queue": "mailer", "pattern": "x" * 256},
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["bind", "unbind"])
def test_bindings_that_make_no_sense(app, client, form, path):
    answer = client.post(f"/topics/{path}", data={"pattern": "a b", **form})
    assert answer.status_code == 400
    assert app.topics.list() == []


def test_a_form_of_another_site_binds_nothing(app, client):
    answer = client.post(
        "/topics/bind", data={"queue": "mailer", "pattern": "x"}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert answer.status_code == 403
    assert client.get("/topics?key=a..%2A").status_code == 400
    assert app.topics.list() == []


def test_a_key_sees_and_changes_its_own_queues(app, client):
    app.subscribe("orders", "a.#")
    app.subscribe("secret", "a.#")
    app.topics.set_alternate("secret")

    def holding(*scopes):
        identity, _, secret = app.store.run(keyring.create("k", scopes, ("orders",), None, 0.0)).partition(".")
        return {"auth": (identity, secret)}

    looking, operating, binding = holding("metrics"), holding("operate"), holding("metrics", "topics")
    assert client.get("/topics").status_code == 401
    for who in (looking, operating, binding):
        text = client.get("/topics?key=a.b", **who).text
        assert "orders" in text and "secret" not in text
        assert "secret" not in client.get("/topics?key=b", **who).text
    for who in (looking, operating):
        assert "Unbind" not in client.get("/topics", **who).text
        assert "Bind a queue" not in client.get("/topics", **who).text
    assert "Unbind" in client.get("/topics", **binding).text
    own, foreign = {"queue": "orders", "pattern": "b"}, {"queue": "secret", "pattern": "b"}
    assert client.post("/topics/bind", data=own, **looking).status_code == 403
    assert client.post("/topics/bind", data=own, **operating).status_code == 403
    assert client.post("/topics/bind", data=foreign, **binding).status_code == 404
    assert client.post("/topics/unbind", data={**foreign, "pattern": "a.#"}, **binding).status_code == 404
    assert client.post("/topics/bind", data=own, **binding).status_code == 303
    assert sorted(tuple(one) for one in app.topics.list()) == [("orders", "a.#"), ("orders", "b"), ("secret", "a.#")]
