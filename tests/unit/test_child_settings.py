"""A worker's child processes work with the options of their parent, whichever options there are."""

import msgspec
import pytest

from reliq.cli.child_settings import CHILD, ChildSettings
from reliq.cli.main import _parser
from reliq.cli.worker import child_options

GIVEN = {
    "--processes": "2",
    "--threads": "3",
    "--concurrency": "7",
    "--lease": "9s",
    "--grace": "4.5",
    "--url": "env:RELIQ_URL",
    "--metrics-port": "9000",
    "--metrics-host": "0.0.0.0",
    "--reconnect-grace": "1s",
    "--queues": "a,b",
    "--except": "b",
    "--reload": None,
    "--no-monitor": None,
    "--tracebacks": None,
    "--quiet": None,
    "--log-json": None,
}
OF_THE_PARENT = {
    "processes": 1,
    "reload": False,
    "metrics_port": None,
    "metrics_host": "127.0.0.1",
    "reconnect_grace": None,
}


def parsed(*arguments):
    return vars(_parser().parse_args(["worker", "shop:app", *arguments]))


def options_in_child(monkeypatch, *arguments):
    options = child_options(_parser().parse_args(["worker", "shop:app", *arguments]))
    monkeypatch.setenv(CHILD, ChildSettings("me", options=options).environment()[CHILD])
    return parsed()


def test_every_option_of_the_worker_is_one_of_this_test():
    options = {name.replace("without", "except") for name in parsed() if name not in ("run", "app", "patient")}
    assert options == {name.removeprefix("--no-").strip("-").replace("-", "_") for name in GIVEN}


def test_a_child_has_the_options_of_its_parent_without_monitor_and_metrics_server(monkeypatch):
    arguments = [part for pair in GIVEN.items() for part in pair if part is not None]
    expected = {**parsed(*arguments), **OF_THE_PARENT}
    assert options_in_child(monkeypatch, *arguments) == expected


def test_a_child_of_a_worker_without_options_has_the_defaults(monkeypatch):
    assert options_in_child(monkeypatch) == {**parsed(), "monitor": False}


def test_the_command_line_of_a_child_goes_before_its_settings(monkeypatch):
    monkeypatch.setenv(CHILD, ChildSettings("me", options={"threads": 3}).environment()[CHILD])
    assert parsed("--threads", "5")["threads"] == 5


def test_settings_are_taken_once(monkeypatch):
    settings = ChildSettings("me", 3, {"lease": "9s"}, "/tmp/measured")
    monkeypatch.setenv(CHILD, settings.environment()[CHILD])
    assert (ChildSettings.take(), ChildSettings.take()) == (settings, None)


def test_a_document_of_another_form_is_refused(monkeypatch):
    monkeypatch.setenv(CHILD, '{"place": 1}')
    with pytest.raises(msgspec.ValidationError, match="owner"):
        ChildSettings.take()
