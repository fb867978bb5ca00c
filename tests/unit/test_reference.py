"""Everything that a user can name is on a page of the reference: names, settings, commands, errors."""

import functools
import inspect
import re
from pathlib import Path

import pytest

import reliq
from reliq.contract import kinds
from reliq.contract.counters import COUNTERS
from reliq.contract.keys import QUEUE_KEYS, SERVER_KEYS
from reliq.contract.keywords import ConfigChanges
from reliq.contract.options import OPTIONS
from reliq.contract.outcomes import DEATHS, OUTCOMES
from reliq.contract.settings import SETTINGS as SETTINGS_OF_QUEUES
from reliq_api.http.problems import CODES
from tools.site.reference import PAGES, command_line, errors, python_api

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
#: What the parts of reliq tell each other, and what its trials do: no setting of a user.
INTERNAL = {
    "RELIQ_WORKER_CHILD",
    "RELIQ_DEMO_RESULTS",
    "RELIQ_BENCH_NOTES",
    "RELIQ_BENCH_QUEUE",
    "RELIQ_SIZE_HANDLER",
    "RELIQ_SIZE_QUEUES",
}
INTERNAL |= {"RELIQ_CHAOS_HISTORY", "RELIQ_CHAOS_QUEUE", "RELIQ_CHAOS_WORK"}


@functools.cache
def made(uri: str) -> str:
    """A page of the reference; that of the HTTP API takes half a second to make."""
    return PAGES[uri]()


def test_every_public_name_is_on_exactly_one_page():
    described = [name for _, _, names in python_api.GROUPS.values() for name in names]
    raised = {kind.__name__ for kind in errors.exceptions()}
    assert sorted(described) == sorted(set(reliq.__all__) - raised - {"__version__"})


@pytest.mark.parametrize("uri", sorted(PAGES))
def test_every_page_can_be_made_and_says_something(uri):
    page = made(uri)
    assert page.startswith("# ")
    assert "None" not in re.findall(r"^(\S+)$", page, re.MULTILINE)


def test_every_name_of_the_reference_has_a_docstring():
    without = {"Backoff", "__version__"}  # a type alias, and a text
    assert [name for name in set(reliq.__all__) - without if not inspect.getdoc(getattr(reliq, name))] == []


def test_every_public_method_has_a_docstring():
    classes = [one for name in reliq.__all__ if inspect.isclass(one := getattr(reliq, name))]
    methods = [
        (one.__name__, name) for one in classes for name, value in vars(one).items() if inspect.isfunction(value)
    ]
    public = [(owner, name) for owner, name in methods if not name.startswith("_")]
    assert [one for one in public if not inspect.getdoc(getattr(getattr(reliq, one[0]), one[1]))] == []


def test_every_setting_of_a_queue_is_documented():
    settings = set(ConfigChanges.__annotations__)
    page = made("reference/queue-settings.md")
    assert {name for name in settings if f"| `{name}` |" not in page} == set()


def test_every_option_of_a_message_is_documented():
    page = made("reference/message-options.md")
    assert {one.name for one in OPTIONS if f"| `{one.name}` |" not in page} == set()


def test_every_outcome_reason_counter_and_key_is_documented():
    outcomes, keys = made("reference/outcomes.md"), made("reference/keys.md")
    names = [one.name for table in (OUTCOMES, DEATHS, COUNTERS) for one in table]
    assert {name for name in names if f"| `{name}` |" not in outcomes} == set()
    assert {one.shown for one in (*QUEUE_KEYS, *SERVER_KEYS) if f"| `{one.shown}` |" not in keys} == set()


def test_every_setting_of_a_queue_is_a_member_of_its_call_over_http():
    _, _, call = made("reference/http-api.md").partition("## `PATCH /v1/queues/{queue}`")
    call = call.partition("\n## ")[0]
    assert {one.name for one in SETTINGS_OF_QUEUES if f"| `{one.name}` |" not in call} == set()


def test_every_option_of_a_message_is_among_the_headers_of_a_call_over_http():
    _, _, call = made("reference/http-api.md").partition("takes its options from headers:")
    named = set(re.findall(r"Reliq-[\w-]+", call.partition("\n\n")[0]))
    flags = {one.flag for one in OPTIONS if not isinstance(one.kind, kinds.Headers)}
    headers = {f"Reliq-{'-'.join(word.capitalize() for word in flag.split('-'))}" for flag in flags}
    assert headers <= named


def test_every_variable_of_the_environment_is_documented_and_every_documented_one_is_read():
    folders = [ROOT / "reliq", ROOT / "api", ROOT / "monitor" / "reliq_monitor"]
    files = [file for folder in folders for file in folder.rglob("*.py")] + [ROOT / "docker-compose.yml"]
    read = {name for file in files for name in re.findall(r"\bRELIQ_[A-Z_]+\b", file.read_text(encoding="utf-8"))}
    assert set(re.findall(r"`(RELIQ_[A-Z_]+)`", SETTINGS)) == read - INTERNAL - {"RELIQ_WORKERS"}


def test_every_command_and_every_option_says_what_it_does():
    commands = list(command_line.commands())
    assert len(commands) > 30
    assert [name for name, _, text in commands if not text] == []
    assert [(name, action.dest) for name, parser, _ in commands for action in parser._actions if not action.help] == []


def test_every_error_is_on_the_page_of_errors():
    page = made("reference/errors.md")
    names = [kind.__name__ for kind in errors.exceptions()] + list(CODES)
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_every_call_over_http_is_on_its_page():
    from reliq_api.app import create_app

    page = made("reference/http-api.md")
    calls = [(path, method) for path, methods in create_app().openapi()["paths"].items() for method in methods]
    assert [call for call in calls if f"## `{call[1].upper()} {call[0]}`" not in page] == []
