"""Each option of a message, setting of a queue and counter shows on every surface, or its entry says why not."""

import argparse
from typing import Any

import pytest

import reliq
from reliq.cli.main import _parser
from reliq.contract import counter_names, kinds, options
from reliq.contract.counters import COUNTERS, Counter
from reliq.contract.keywords import Config, ScheduledOptions
from reliq.contract.options import OPTIONS, Option, options_of
from reliq.contract.settings import SETTINGS
from reliq.features.schedules.model import Definition
from reliq.features.schedules.schemas import ScheduleRequest
from reliq.model.stats import Stats
from reliq.observability.queue_metrics import of_queues
from reliq_api import schemas
from reliq_api.enqueue.entries import Entry
from reliq_api.ui import messages as form
from reliq_monitor import audit

FLAGS = {"send": options.SEND, "publish": options.PUBLISH, "schedule add": options.SCHEDULE}
MEMBERS = {schemas.NewMessage: options.SEND, ScheduleRequest: options.SCHEDULE}


def names(surface: str) -> set[str]:
    return {option.name for option in options_of(surface)}


def flags(command: str) -> set[str]:
    found = _parser()
    for word in command.split():
        (subcommands,) = [one for one in found._actions if isinstance(one, argparse._SubParsersAction)]
        found = subcommands.choices[word]
    return {flag for action in found._actions for flag in action.option_strings}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda one: one.name)
def test_an_entry_says_what_it_is_and_why_a_surface_leaves_it_out(option: Option):
    assert option.text[0].islower()
    assert not option.text.endswith(".")
    known = {
        options.SEND_MANY,
        options.PUBLISH,
        options.SCHEDULE,
        options.SPARK,
        options.OUTBOX,
        options.FORM,
        options.KOMBU,
    }
    assert set(option.left_out) <= known
    assert all(len(reason) > 10 for reason in option.left_out.values())


@pytest.mark.parametrize(("command", "surface"), FLAGS.items())
def test_a_command_has_a_flag_for_each_option(command, surface):
    wanted = {"--header" if one.name == "headers" else f"--{one.flag}" for one in options_of(surface)}
    assert wanted - flags(command) == set()


@pytest.mark.parametrize(("schema", "surface"), MEMBERS.items())
def test_a_schema_of_http_has_a_member_for_each_option(schema, surface):
    assert names(surface) - set(schema.model_fields) == set()


def test_the_members_that_are_read_are_those_of_the_schema():
    assert set(Entry.__struct_fields__) == set(schemas.NewMessage.model_fields)


def test_the_form_of_the_dashboard_has_a_field_for_each_option():
    assert {one.name for one in form.OPTIONS} | {"headers"} == names(options.FORM)


def test_a_schedule_keeps_each_option_of_its_messages():
    assert names(options.SCHEDULE) == set(ScheduledOptions.__optional_keys__)
    assert names(options.SCHEDULE) - set(Definition.__struct_fields__) == set()


def test_a_row_of_the_outbox_keeps_each_option():
    from reliq.contrib.sql import row_of

    given: Any = {
        "id": "x",
        "headers": {"a": "b"},
        "delay": 1.0,
        "ttl": 2.0,
        "key": "k",
        "limit_key": "k",
        "cost": 7,
        "priority": "low",
    }
    assert set(given) == names(options.OUTBOX)
    row = row_of("q", reliq.NewMessage(b"x", **given))
    assert all(str(value) in str(row).replace("'", '"') or value in row.values() for value in ("k", "low", 1.0, "x", 7))


def test_a_column_of_spark_is_an_option_or_says_where_a_row_goes():
    pytest.importorskip("pyspark")
    from reliq.spark.write_columns import OPTIONS as COLUMNS

    def column(one: Option) -> str:
        return one.name + "_ms" * isinstance(one.kind, kinds.Duration)

    assert set(COLUMNS) - {"queue", "topic"} == {column(one) for one in options_of(options.SPARK)}


def test_kombu_gives_each_option_that_it_does_not_leave_out():
    from reliq.contrib.kombu.messages import outgoing
    from reliq.contrib.kombu.options import Options

    said = {"content-type": "text/plain", "content-encoding": "utf-8", "body": "x", "headers": {"x-delay": 1000}}
    made = outgoing({**said, "properties": {"expiration": "2000", "priority": 9}}, Options(), three_priorities=True)
    plain = reliq.NewMessage(b"x", id=made.id)
    changed = {one.name for one in OPTIONS if getattr(made, one.name) != getattr(plain, one.name)}
    assert changed == names(options.KOMBU)


def test_an_option_is_an_http_header():
    from reliq_api.enqueue.entries import HEADERS

    wanted = {f"reliq-{one.flag}" for one in OPTIONS if not isinstance(one.kind, kinds.Headers)}
    assert set(HEADERS) == wanted


@pytest.mark.parametrize("schema", [schemas.ConfigChanges, schemas.QueueConfig])
def test_a_schema_of_http_has_each_setting(schema):
    assert {one.name for one in SETTINGS} - set(schema.model_fields) == set()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda one: one.name)
def test_the_default_of_a_setting_is_that_of_the_policy(setting):
    assert getattr(Config(), setting.name) == setting.default


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda one: one.name)
def test_an_entry_says_what_it_counts_and_why_it_is_no_metric(counter: Counter):
    assert counter.text[0].islower()
    assert not counter.text.endswith(".")
    assert bool(counter.metric) != bool(counter.left_out)
    assert getattr(counter_names.Counter, counter.name.upper()) == counter.name


def test_each_counter_that_is_a_metric_is_exported_with_its_text():
    found = {one.name: one for one in of_queues([Stats("q", 0, 0, 0, 0, 0, 0.0, 0, paused=False)])}
    counted = {name: one.documentation for name, one in found.items() if one.type == "counter"}
    assert counted == {one.metric: one.help for one in COUNTERS if one.metric}


@pytest.mark.parametrize("counter", [one for one in COUNTERS if one.enters], ids=lambda one: one.name)
def test_the_audit_counts_what_entered_and_what_has_left(counter: Counter):
    counted = Stats("q", 0, 0, 0, 0, 0, 0.0, 0, paused=False, counters={counter.name: 2})
    assert counted.missing == 2 * counter.enters


def test_the_audit_prints_each_counter_of_messages_that_have_left():
    (book,) = [audit._book(Stats("q", 0, 0, 0, 0, 0, 0.0, 0, paused=False))]
    assert set(book.gone) == {one.name for one in COUNTERS if one.enters < 0}
