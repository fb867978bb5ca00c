"""Sizes: bytes or a text with a unit, and the limit of a body that is read from them."""

from collections.abc import Sequence

import pytest

import reliq
from reliq.contract.values import BODY_LIMIT, MAX_BODY_BYTES, bytes_text, size
from reliq.errors import InvalidSetting
from reliq.model.outgoing import NewMessage
from reliq.protocol.batch import RawBatch, calls_of

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("given", "number"),
    [(1, 1), ("1048576", MIB), ("512KiB", 512 * 1024), ("8 MiB", 8 * MIB), (" 64mib ", 64 * MIB), ("1GiB", 1024 * MIB)],
)
def test_a_size_is_bytes_or_a_text_with_a_unit(given, number):
    assert size(given, "x", 1, 1 << 40) == number


@pytest.mark.parametrize(
    "given", ["", "MiB", "8MB", "8M", "1.5MiB", "-1", "1e6", "\u0661", "9" * 5000, 8.0, True, None, b"8"]
)
def test_any_other_size_is_refused_with_its_name_and_value(given):
    with pytest.raises(InvalidSetting, match="x is ") as error:
        size(given, "x", 1, 1 << 60)
    assert repr(given) in str(error.value)


@pytest.mark.parametrize("given", [0, -1, "0KiB", MAX_BODY_BYTES + 1, "65MiB", "1GiB"])
def test_a_body_limit_out_of_its_range_is_refused_with_the_range(given):
    with pytest.raises(InvalidSetting, match=r"^max_body is .*: it must be from 1 byte to 64 MiB$"):
        reliq.Reliq("redis://h", max_body=given)


def test_the_limit_is_that_of_the_call_else_of_the_environment_else_1_mib(monkeypatch):
    monkeypatch.delenv("RELIQ_MAX_BODY", raising=False)
    assert reliq.Reliq("redis://h").max_body == BODY_LIMIT == MIB
    monkeypatch.setenv("RELIQ_MAX_BODY", "8MiB")
    assert reliq.Reliq("redis://h").max_body == 8 * MIB
    assert reliq.Reliq("redis://h", max_body="64MiB").max_body == 64 * MIB
    monkeypatch.setenv("RELIQ_MAX_BODY", "much")
    with pytest.raises(InvalidSetting, match="RELIQ_MAX_BODY is 'much'"):
        reliq.Reliq("redis://h")


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1 byte"), (1023, "1,023 bytes"), (1024, "1 KiB"), (64 * MIB, "64 MiB"), (1025, "1,025 bytes")],
)
def test_a_size_is_written_as_it_is_read(number, text):
    assert bytes_text(number) == text


@pytest.mark.parametrize("kind", ["bare", "with options"])
@pytest.mark.parametrize(
    ("bodies", "calls"),
    [
        ([], []),
        ([0] * 2500, [1000, 1000, 500]),
        ([10 * MIB] * 3, [1, 1, 1]),
        ([17 * MIB, 0, 0], [1, 2]),
        ([1 * MIB] * 20, [10, 10]),
    ],
)
def test_a_call_has_at_most_1000_messages_and_16_mib_or_one_message(kind, bodies, calls):
    whole = {length: bytes(length) for length in set(bodies)}
    texts = [whole[length] for length in bodies]
    ids = [str(number) for number in range(len(bodies))]
    messages: Sequence[NewMessage] = [NewMessage(body, id=one) for body, one in zip(texts, ids, strict=True)]
    if kind == "bare":
        messages = RawBatch(texts, ids)
    found = list(calls_of(messages, pushed=True))
    assert [len(call) for call in found] == calls
    assert [message.id for call in found for message in call] == ids


@pytest.mark.parametrize(
    ("options", "pushed", "calls"),
    [
        ({}, True, [1000, 200]),
        ({}, False, [250, 250, 250, 250, 200]),
        ({"delay": 5}, True, [100] * 12),
        ({"dedup_key": "one"}, True, [62] * 19 + [22]),
    ],
)
def test_more_than_1000_messages_are_sent_in_calls_that_are_as_short_as_each_other(options, pushed, calls):
    messages = [NewMessage(b"", **options) for _ in range(1200)]
    assert [len(call) for call in calls_of(messages, pushed)] == calls
    assert [len(call) for call in calls_of(messages[:1000], pushed)] == [1000]


def test_a_message_with_options_costs_as_much_as_several_without():
    messages = [NewMessage(b"", key="a" if number % 2 else None) for number in range(1200)]
    assert len(next(calls_of(messages, pushed=True))) == 181
