"""An element is untrusted input: either all steps work on its message, or it does not decode."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliq.contract import values
from reliq.model import backoff
from reliq.model.dead_letter import DeadLetter
from reliq.model.element import Undecodable
from reliq.model.listed_message import Glimpse
from reliq.model.message import Message, undecodable_letter
from reliq.ops import Fate
from reliq.protocol.outcomes import failure_now
from reliq_monitor.reclaim import charge_deliveries
from tests.support.state import element

NUMBERS: list[Any] = [
    -1,
    -(2**63),
    2**31,
    2**53,
    2**63,
    2**64 - 1,
    1.0,
    1e308,
    float("nan"),
    True,
    None,
    "1",
    b"1",
    [],
    {},
]
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8) | st.binary(),
    lambda some: st.lists(some, max_size=4) | st.dictionaries(st.text(max_size=9), some, max_size=4),
    max_leaves=20,
)
COUNTS = st.sampled_from([0, 1, values.MAX_COUNT - 1, values.MAX_COUNT, 2**64 - 1]) | st.integers(0, 9)
TIMES = st.sampled_from([0, values.MAX_TIME_MS, values.MAX_TIME_MS + 1, 2**64 - 1])
EXTRA = st.none() | st.dictionaries(
    st.sampled_from(["expires_at", "routing_key", "reason", "errors", "key", "cycle", "priority", "group", "x"]), ANY
)
FIELDS = [
    st.just(1), st.text(min_size=1, max_size=130), st.integers(0, 2**64 - 1), COUNTS, COUNTS, st.booleans(), TIMES,
    st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3), st.binary(max_size=300), EXTRA,
]  # fmt: skip


def decoded(raw):
    try:
        return Message.decode("q", raw)
    except Undecodable:
        return None


def every_step_works(raw):
    """What a worker, the monitor and a listing do with it."""
    message = decoded(raw)
    (returned,) = charge_deliveries("q", [raw], 5, alone=True, mark=None)
    if message is None:
        assert returned.fate is Fate.UNREADABLE
        return
    failure = failure_now("w", "ValueError", "text")
    pushes = [
        message.again(redelivered=True, deliveries=message.deliveries), message.failed(failure),
        message.failed(failure, "max_failures"), message.buried("expired"), message.revived(keep_failures=True),
        message.revived(keep_failures=False), returned.again,
    ]  # fmt: skip
    assert all(Message.decode("q", again).id == message.id for again in pushes)
    backoff.exponential()(message.failures + 1, ValueError())
    assert DeadLetter.read("q", Glimpse(raw, score=b"+inf")).summary()["id"] == message.id


@given(ANY)
def test_any_value_of_messagepack(value):
    every_step_works(msgspec.msgpack.encode(value))


@given(st.tuples(*FIELDS))
def test_an_envelope_at_the_edges_of_its_ranges(fields):
    every_step_works(msgspec.msgpack.encode(fields))


@given(st.integers(0, 9), ANY, st.tuples(*FIELDS))
def test_an_envelope_with_anything_in_one_field(place, value, fields):
    every_step_works(msgspec.msgpack.encode([*fields[:place], value, *fields[place + 1 :]]))


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
@pytest.mark.parametrize("place", [3, 4, 6])
def test_a_number_out_of_its_range_does_not_decode(place, value):
    fields = msgspec.msgpack.decode(element("a"))
    fields[place] = value
    raw = msgspec.msgpack.encode(fields)
    inside = isinstance(value, int) and not isinstance(value, bool) and value in (2**31, 2**53) and place == 6
    assert (decoded(raw) is not None) == (inside and value <= values.MAX_TIME_MS)


@pytest.mark.parametrize("identity", ["", "x" * 129, "a b", "a\nb", "schön", "\x7f", "\ud7ff"])
def test_an_id_outside_of_its_alphabet_does_not_decode(identity):
    fields = msgspec.msgpack.decode(element("a"))
    assert decoded(msgspec.msgpack.encode([fields[0], identity, *fields[2:]])) is None


@pytest.mark.parametrize(
    "head",
    [
        bytes.fromhex("dc000901a161"),  # an array in its long form
        bytes.fromhex("99cc01a161"),  # the version in its long form
        bytes.fromhex("9901da000161"),  # the id in its long form
    ],
)
def test_what_hides_the_id_from_scripts_does_not_decode(head):
    short = bytes.fromhex("9901a161")
    raw = msgspec.msgpack.encode(msgspec.msgpack.decode(element("a"))[:9])
    assert raw.startswith(short)
    assert decoded(raw) is not None
    assert decoded(head + raw.removeprefix(short)) is None


def test_arrays_nested_too_deep_do_not_decode():
    raw = element("a")[:-1]
    assert decoded(raw + b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0") is None


def test_an_element_larger_than_the_limit_becomes_a_dead_letter_as_it_is(monkeypatch):
    """Redis would refuse it with anything around it."""
    monkeypatch.setattr(values, "MAX_ELEMENT_BYTES", 1000)
    monkeypatch.setattr("reliq.model.message._MAX_ELEMENT_BYTES", 1000)
    raw = element("a", body=b"x" * 1000)
    assert decoded(raw) is None
    assert undecodable_letter(raw)[1] == raw
    assert decoded(undecodable_letter(b"\xc1")[1]).body == b"\xc1"
