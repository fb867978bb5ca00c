"""Errors of several lines, and their public names: what lists and details of the command line show of them."""

import json
import os
import subprocess
import sys

import pytest

import reliq
from reliq.cli import main
from reliq.testing import work_off


@pytest.fixture
def say(app, capsys):
    """Run a command; what it printed."""

    def run(*arguments):
        assert main.main([*arguments, "--url", app.url]) == 0
        return capsys.readouterr().out

    return run


SEVERAL = "no such order\nhint: look\nbye"


def die(app, error, **options):
    """Let a message fail by this error; return its id."""

    @app.handler("orders", **options)
    def handle(message: reliq.Message) -> None:
        raise error

    identity = app.queue("orders").send("x")
    assert work_off(app) == 1
    return identity


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError(SEVERAL), "ValueError: no such order\n"),
        (reliq.Dead(SEVERAL), "reliq.Dead: no such order\n"),
        (reliq.Retry(SEVERAL), "reliq.Retry: no such order\n"),
    ],
)
def test_the_list_of_dead_letters_shows_the_first_line_and_the_details_show_all(app, say, error, shown):
    one = die(app, error, retry=lambda failures, error: None)
    assert say("dead", "list", "orders").endswith(f"failures=1  {shown}")
    assert SEVERAL in json.loads(say("dead", "show", "orders", one))["errors"][-1]["text"]
    assert SEVERAL in json.loads(say("dead", "list", "orders", "--json"))["letters"][0]["error"]


def test_letters_of_every_script_stay_as_they_are(app, say):
    one = die(app, ValueError("Größe ungültig: 订单 ☕"), retry=0)
    assert say("dead", "list", "orders").endswith("  ValueError: Größe ungültig: 订单 ☕\n")
    assert "ValueError: Größe ungültig: 订单 ☕" in say("dead", "show", "orders", one)
    assert "ValueError: Größe ungültig: 订单 ☕" in say("dead", "show", "orders", one, "--json")


def test_what_standard_output_cannot_encode_is_an_escape_of_json(app, url):
    one = die(app, ValueError("Größe 🙂"), retry=0)
    command = [sys.executable, "-m", "reliq", "dead", "show", "orders", one, "--url", url]
    printed = subprocess.run(
        command, capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    ).stdout
    assert "ValueError: Größe 🙂" in json.loads(printed)["error"]


def test_the_details_of_a_dead_letter_have_its_key(app, say, monkeypatch):
    @app.handler("orders", retry=0)
    def handle(message: reliq.Message) -> None:
        raise ValueError

    one = app.queue("orders").send("x", key="customer-7")
    work_off(app)
    assert json.loads(say("dead", "show", "orders", one))["key"] == "customer-7"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "key             customer-7\n" in say("dead", "show", "orders", one)


def test_the_list_of_delayed_messages_and_find_show_the_first_line(app, say):
    one = die(app, ValueError(SEVERAL), retry=reliq.fixed("1h"))
    assert say("delayed", "list", "orders").endswith("failures=1  ValueError: no such order\n")
    assert "ValueError: no such order\n" in say("find", one)


@pytest.mark.parametrize("name", ["reliq.Dead", "Dead"])
def test_letters_are_found_by_the_public_name_of_their_error(app, say, name):
    one = die(app, reliq.Dead("no"))
    assert one in say("dead", "list", "orders", "--error-class", name)
    assert app.queue("orders").dead.get(one).last_error.error_class == "reliq.Dead"


@pytest.mark.parametrize(
    ("stored", "found_by"),
    [
        ("reliq.model.policy.Dead", {"reliq.Dead", "Dead", "reliq.model.policy.Dead"}),
        ("reliq.errors.InvalidBody", {"reliq.InvalidBody", "InvalidBody", "reliq.errors.InvalidBody"}),
        ("shop.Dead", {"Dead", "shop.Dead"}),
    ],
)
def test_letters_of_an_earlier_version_are_found_too(app, stored, found_by):
    module, _, name = stored.rpartition(".")
    kind = type(name, (Exception,), {"__module__": module})
    one = die(app, kind("no"), retry=lambda failures, error: None)
    names = {"reliq.Dead", "Dead", "reliq.model.policy.Dead", "reliq.InvalidBody", "InvalidBody", "shop.Dead", stored}
    listed = app.queue("orders").dead.list
    assert {name for name in names if [letter.id for letter in listed(error_class=name)] == [one]} == found_by


def test_every_error_of_the_library_has_a_name_that_can_be_imported():
    public = [getattr(reliq, name) for name in reliq.__all__]
    modules = {one.__module__ for one in public if isinstance(one, type) and issubclass(one, BaseException)}
    assert modules == {"reliq", "reliq.errors"}


def test_on_a_terminal_the_details_have_the_line_breaks_and_into_a_pipe_they_are_json(app, say, monkeypatch):
    one = die(app, ValueError(f"{SEVERAL}\x1b[31m"), retry=0)
    assert json.loads(say("dead", "show", "orders", one))["id"] == one
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    shown = say("dead", "show", "orders", one).splitlines()
    assert shown[0].split() == ["id", one]
    assert shown[-5:] == ["    hint: look", "    bye\\x1b[31m", "", "body", "    x"]
    assert "    ValueError: no such order" in shown
    assert json.loads(say("dead", "show", "orders", one, "--json"))["id"] == one
