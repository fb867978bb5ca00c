"""The form of a queue's policy."""

import re

import pytest
from playwright.sync_api import expect

from reliq.contract.keywords import Config
from reliq.contract.settings import SETTINGS
from reliq.errors import InvalidSetting
from reliq_api.ui.policy import changes, groups, written

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
EMPTY = [(setting.name, "") for setting in SETTINGS]


@pytest.mark.parametrize(
    ("age", "text"), [(86_400 * 30.0, "30d"), (7200, "2h"), (90, "90s"), (60, "1m"), (1.5, "1.5s"), (None, "")]
)
def test_ages_are_written_in_their_largest_unit_and_read_back(age, text):
    config = Config(dead_max_age=age)
    assert written(config)["dead_max_age"] == text
    assert changes([("dead_max_age", text)], config) == {}
    assert changes([("dead_max_age", text)], Config(dead_max_age=5.0)) == {"dead_max_age": age}


def test_defaults_are_empty_fields():
    assert list(written(Config()).items()) == EMPTY
    assert changes(EMPTY, Config()) == {}


def test_only_what_was_changed_is_set():
    before = Config(max_length=5, dead_max_count=9)
    form = {**written(before), "max_length": "", "max_bytes": "1_048_576", "durability": "fsync"}
    assert changes(list(form.items()), before) == {"max_length": None, "max_bytes": 1_048_576, "durability": "fsync"}
    assert changes([("unknown", "1")], before) == {}


@pytest.mark.parametrize("text", ["-1", "1.5", "many", "1e9", "²", "9" * 20, "0x10"])
def test_a_number_is_whole(text):
    with pytest.raises(InvalidSetting, match="max_length"):
        changes([("max_length", text)], Config())


def test_each_setting_is_in_one_group_of_the_form():
    named = groups()
    assert [one for _, entries in named for one in entries] == list(SETTINGS)
    assert len({name for name, _ in named}) == len(named) > 1
    assert all(name for name, _ in named)


def test_a_switch_is_turned_on_and_off(app, client):
    form = client.get("/queues/orders/policy")
    assert form.status_code == 404
    app.queue("orders").send(1)
    switch = '<input type="checkbox" role="switch" name="fair" value="true"'
    assert f"{switch}>" in client.get("/queues/orders/policy").text
    client.post("/queues/orders/policy", content="fair=&fair=true", headers=FORM)
    assert app.queue("orders").config().fair is True
    assert f"{switch} checked>" in client.get("/queues/orders/policy").text
    client.post("/queues/orders/policy", content="fair=", headers=FORM)
    assert app.queue("orders").config().fair is False


def test_a_policy_is_changed_by_a_form_without_a_browser(app, client):
    app.queue("orders").configure(max_length=5)
    answer = client.post(
        "/queues/orders/policy", data={"max_length": "", "max_bytes": "2097152", "dead_max_age": "30d"}
    )
    assert answer.headers["location"] == "/queues/orders?notice=configured"
    config = app.queue("orders").config()
    assert (config.max_length, config.max_bytes, config.dead_max_age) == (None, 2_097_152, 30 * 86_400)
    text = re.sub(r"<[^>]+>", " ", client.get("/queues/orders").text)
    assert "2.0 MiB" in text and "30 d" in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_length", "0"), ("max_length", "x"), ("max_bytes", "5"), ("max_deliveries", "99999"),
        ("dead_max_age", "-1d"), ("dead_max_age", "nan"), ("dead_max_count", "9" * 19),
        ("durability", "sure"), ("durability", "<b>"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_changes_nothing(app, client, field, value):
    app.queue("orders").configure(max_length=5)
    answer = client.post("/queues/orders/policy", data={"dead_max_count": "7", field: value})
    assert answer.status_code == 422
    assert "<b>" not in answer.text
    assert app.queue("orders").config() == Config(max_length=5)


def test_a_refused_form_keeps_what_was_typed_and_says_why_beside_the_field(app, client):
    app.queue("orders").configure(fair=True)
    fields = {"rate": "lots", "dead_max_age": "30d", "max_length": "7", "fair": ""}
    answer = client.post("/queues/orders/policy", data=fields)
    assert answer.status_code == 422
    for name, value in (("rate", "lots"), ("dead_max_age", "30d"), ("max_length", "7")):
        assert re.search(rf'<input id="{name}" name="{name}" value="{value}"', answer.text)
    assert 'name="fair" value="true">' in answer.text
    assert re.search(r'id="rate-fault" role="alert">rate is &#39;lots&#39;: write a number', answer.text)
    assert 'aria-describedby="rate-fault"' in answer.text
    assert answer.text.count('class="fault"') == 1


def test_a_fault_of_two_fields_stands_at_the_first_of_them(app, client):
    app.queue("orders").configure(rate="5/s")
    answer = client.post("/queues/orders/policy", data={"burst": "9", "rate": ""})
    assert answer.status_code == 422
    assert answer.text.count('class="fault"') == 1


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_a_policy_is_changed_in_a_browser(app, look, script):
    app.queue("orders").send(1)
    page = look("/queues/orders", java_script_enabled=script)
    page.get_by_role("link", name="Change…").click()
    page.get_by_label("Limit of ready and delayed messages").fill("5000")
    page.get_by_label("Keep dead letters for").fill("7d")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The policy is saved.")).to_be_visible()
    expect(page.get_by_text("5,000")).to_be_visible()
    config = app.queue("orders").config()
    assert (config.max_length, config.dead_max_age) == (5000, 7 * 86_400)
    page.get_by_role("link", name="Change…").click()
    expect(page.get_by_label("Limit of ready and delayed messages")).to_have_value("5000")
    page.get_by_label("Limit of ready and delayed messages").fill("")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("The policy is saved.")).to_be_visible()
    assert app.queue("orders").config().max_length is None
