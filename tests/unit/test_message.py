"""The element on the wire, and what becomes of it when it is pushed again."""

import contextlib
import json
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reliq
from reliq.contract.values import cut
from reliq.model.element import (
    APART,
    BODY_REFERENCE,
    ELEMENT_TAIL,
    Envelope,
    Extra,
    Failure,
    Undecodable,
    encode_envelope,
    first_element_apart,
    group_of,
    new_id,
    new_reference,
)
from reliq.model.message import Message, wrapped
from reliq.model.outgoing import NewMessage

VECTORS = json.loads((Path(__file__).parents[2] / "docs" / "reference" / "wire-format.json").read_text())


def element(**changes):
    fields = {
        "version": 1, "id": "a", "nonce": 1, "deliveries": 0, "failures": 0, "redelivered": False,
        "enqueued_at": 1_700_000_000_000, "headers": {}, "body": b"x",
    }  # fmt: skip
    return msgspec.msgpack.encode(Envelope(**{**fields, **changes}))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["what"])
def test_the_vectors_of_the_wire_format_page_are_what_is_read(vector):
    raw = bytes.fromhex(vector["hex"])
    if vector["message"] is None:
        with pytest.raises(Undecodable):
            Message.decode("q", raw)
        return
    message = Message.decode("q", raw)
    found = {name: getattr(message, name) for name in vector["message"] if name != "body"}
    if message.body_is_read:
        found["body"] = message.body.hex()
    else:
        found["reference"] = message.reference.hex()
    assert found == vector["message"]


@given(st.binary(max_size=300))
def test_bytes_from_anywhere_are_an_element_or_undecodable(raw):
    with contextlib.suppress(Undecodable):
        assert isinstance(Message.decode("q", raw).id, str)


@given(
    st.binary(max_size=100),
    st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5)),
    st.integers(0, 2**40),
)
def test_what_is_sent_is_what_is_read(body, headers, now):
    headers = {name: value for name, value in headers.items() if (name + value).isprintable()}
    message = Message.decode("q", NewMessage(body, headers=headers).element(now))
    assert (message.body, message.headers, message.enqueued_at) == (body, headers, now)


def test_every_push_is_other_bytes():
    message = Message.decode("q", element())
    pushes = {message.again() for _ in range(1000)} | {NewMessage("x", id="a").element(1) for _ in range(1000)}
    assert len(pushes) == 2000


def test_ids_are_unique_across_threads_and_sortable_by_time():
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend(new_id() for _ in range(5000))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 20_000
    first, second = new_id(), None
    while not second or second[:13] == first[:13]:
        second = new_id()
    assert first < second


def test_a_seeded_random_does_not_repeat_ids():
    import random

    random.seed(1)
    first = new_id()
    random.seed(1)
    assert new_id() != first


def test_a_failure_adds_to_the_history_and_nothing_else_changes():
    message = Message.decode("q", element(headers={"a": "b"}, deliveries=2))
    failed = Message.decode("q", message.failed(Failure(1, "w", "ValueError", "boom")))
    assert (failed.id, failed.body, failed.headers, failed.deliveries, failed.failures) == ("a", b"x", {"a": "b"}, 2, 1)
    assert failed.errors == (Failure(1, "w", "ValueError", "boom"),)


@pytest.mark.parametrize("redelivered", [False, True])
@pytest.mark.parametrize("routing_key", ["", "order.created"])
def test_a_revived_letter_starts_afresh_with_its_routing_key(routing_key, redelivered):
    letter = Message.decode("q", NewMessage("x", ttl=60).element(1, routing_key=routing_key))
    letter = Message.decode("q", letter.again(redelivered=redelivered, deliveries=int(redelivered)))
    letter = Message.decode("q", letter.failed(Failure(1, "w", "E", "t"), "expired"))
    again = Message.decode("q", letter.revived(keep_failures=False))
    assert (again.failures, again.errors, again.reason, again.expires_at) == (0, (), "", 0)
    assert (again.deliveries, again.redelivered) == (0, False)
    assert again.routing_key == routing_key


def test_bytes_that_do_not_decode_are_wrapped_whole():
    identity, raw = wrapped(b"\xc1\x00")
    letter = Message.decode("q", raw)
    assert (letter.id, letter.body, letter.reason) == (identity, b"\xc1\x00", "decode")


@given(st.text(max_size=300), st.integers(20, 100))
def test_a_text_is_cut_to_its_bytes(text, largest):
    assert len(cut(text, largest).encode()) <= max(largest, 0)


def test_a_short_text_is_not_cut():
    assert cut("grüße") == "grüße"
    assert cut("a\ud800b") == "a?b"


def test_the_tail_of_an_element_is_what_msgspec_writes_and_the_scripts_read():
    """ELEMENT_TAIL, the fields of Extra, and the constants of shared/element.lua are one description."""
    lua = (Path(reliq.__file__).parent / "lua" / "shared" / "element.lua").read_text(encoding="utf-8")
    reference = new_reference(5_000)
    extra = Extra(key="k", cycle=True, priority="high", group=group_of("k"), apart=reference)
    element = first_element_apart("a", 1, {}, extra)
    tail = (
        ELEMENT_TAIL["cycle"] + ELEMENT_TAIL["high"] + ELEMENT_TAIL["group"] + group_of("k").encode()
        + ELEMENT_TAIL["apart"] + reference
    )  # fmt: skip
    assert element.endswith(tail)
    assert encode_envelope(Extra(priority="low")).endswith(ELEMENT_TAIL["low"])
    assert encode_envelope(Extra(lane=True, priority="low")).endswith(ELEMENT_TAIL["lane"] + ELEMENT_TAIL["low"])
    names = [field.name for field in msgspec.structs.fields(Extra)]
    assert names[-5:] == ["cycle", "lane", "priority", "group", "apart"]
    for marker in ELEMENT_TAIL.values():
        written = "".join(chr(byte) if chr(byte).isalpha() and byte < 128 else f"\\{byte}" for byte in marker)
        assert f"'{written}'" in lua
    assert f"BODY_REFERENCE = {BODY_REFERENCE} " in lua
    assert f"local APART = {len(ELEMENT_TAIL['apart'])} + BODY_REFERENCE " in lua
    assert f"VERSION_APART = {APART} " in lua
    assert len(reference) == BODY_REFERENCE
