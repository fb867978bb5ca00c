"""What scripts read of an element without decoding it is what a reader of the whole element finds."""

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliq.model.element import APART, INLINE, Extra, Failure, group_of, new_reference
from reliq.model.message import Message, wrapped
from reliq.ops import Op
from tests.support.properties import examples
from tests.support.scripts import LUA
from tests.unit.test_message import VECTORS

READ = (
    (LUA / "shared" / "element.lua").read_text(encoding="utf-8")
    + """
local found = {}
for at, element in ipairs(ARGV) do
  found[at] = {
    id_of(element), group_of(element) or '', priority_of(element) or 'normal', is_cyclic(element) and 1 or 0,
    is_laned(element) and 1 or 0, body_of(element) or '', size_of(element),
  }
end
return found
"""
)

#: Bytes that read as a key, a priority, a member of a cycle.
GROUP = b"\xa5group\xb0" + group_of("other").encode()
TAILS = [GROUP, b"\xa8priority\xa4high", b"\xa8priority\xa3low", b"\xa5cycle\xc3", b"\xa4lane\xc3"]
LOOKALIKES = [b"", *TAILS, b"".join(TAILS[1:2] + TAILS[:1]), TAILS[3] + TAILS[0], TAILS[3] + TAILS[2] + TAILS[0]]
LOOKALIKES += [TAILS[4] + TAILS[0], TAILS[4] + TAILS[2] + TAILS[0]]

texts = st.one_of(st.text(max_size=20), st.sampled_from([one.decode("latin-1") for one in LOOKALIKES]))
bodies = st.builds(lambda head, tail: head + tail, st.binary(max_size=40), st.sampled_from(LOOKALIKES))
failures = st.builds(Failure, at=st.just(1), worker=texts, error_class=texts, text=texts)


@st.composite
def extras(draw):
    key = draw(st.one_of(st.just(""), texts))
    lane = bool(key) and draw(st.booleans())
    return Extra(
        expires_at=draw(st.sampled_from([0, 1_700_000_000_000])),
        routing_key=draw(texts),
        reason=draw(texts),
        errors=tuple(draw(st.lists(failures, max_size=2))),
        key="" if lane else key,
        limit_key=key if lane else "",
        cycle=bool(key) and not lane and draw(st.booleans()),
        lane=lane,
        priority=draw(st.sampled_from(["", "high", "low"])),
        group=group_of(key),
    )


@st.composite
def elements(draw):
    """As reliq and foreign writers make them: with an `extra`, with nil, and without that field."""
    extra = draw(st.one_of(st.none(), extras()))
    apart = draw(st.booleans())
    if apart:
        extra = msgspec.structs.replace(extra or Extra(), apart=new_reference(draw(st.integers(1025, 2**26))))
    fields = (
        APART if apart else INLINE,
        draw(st.text("abc-019", min_size=1, max_size=128)), draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 9)),
        draw(st.integers(0, 9)), draw(st.booleans()), draw(st.integers(0, 2**41)),
        draw(st.dictionaries(texts, texts, max_size=2)), b"" if apart else draw(bodies), extra,
    )  # fmt: skip
    return msgspec.msgpack.encode(fields[:9] if extra is None and draw(st.booleans()) else fields)


@st.composite
def pushes(draw):
    """Elements, and what becomes of them when they are pushed again."""
    element = draw(elements())
    message = Message.decode("q", element)
    return draw(st.sampled_from([
        element, message.again(), message.failed(Failure(1, "w", "E", "t")), message.buried("expired"),
        message.revived(keep_failures=False), wrapped(element)[1],
    ]))  # fmt: skip


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(pushes(), min_size=1, max_size=20))
def test_scripts_and_readers_find_the_same(world, found):
    messages = [Message.decode("q", one) for one in found]
    expected = [
        [
            one.id.encode(), one.group.encode(), one.priority.encode(), int(one.in_cycle),
            int(bool(one.extra and one.extra.lane)), one.reference,
            len(one.element) + (one.size if one.reference else 0),
        ]
        for one in messages
    ]  # fmt: skip
    assert world.run(Op(("EVAL", READ, 0, *found))) == expected


def test_scripts_read_the_vectors_of_the_wire_format_page(world):
    vectors = [one for one in VECTORS if one["message"]]
    found = world.run(Op(("EVAL", READ, 0, *(bytes.fromhex(one["hex"]) for one in vectors))))
    for vector, (identity, group, priority, cyclic, laned, reference, size) in zip(vectors, found, strict=True):
        message = vector["message"]
        assert identity.decode() == message["id"]
        assert group.decode() == message.get("group", "")
        assert priority.decode() == message.get("priority", "normal")
        assert bool(cyclic) == message.get("in_cycle", False)
        assert bool(laned) == ("limit_key" in message)
        assert reference.hex() == message.get("reference", "")
        assert size == len(bytes.fromhex(vector["hex"])) + message.get("size", 0)


def test_a_body_at_the_end_of_an_element_says_nothing(world):
    """Nine fields, as a foreign producer may write them, and every lookalike as the body."""
    found = [msgspec.msgpack.encode((1, "a", 1, 0, 0, False, 0, {}, body)) for body in LOOKALIKES]
    assert world.run(Op(("EVAL", READ, 0, *found))) == [[b"a", b"", b"normal", 0, 0, b"", len(one)] for one in found]


def test_a_body_that_what_follows_it_completes_to_a_key_is_none(world):
    """The bytes behind the body, nil or `extra`, may be just those that a lookalike in the body lacks."""
    extras = [None, Extra(priority="high"), Extra(priority="low"), Extra(expires_at=1_700_000_000_000)]
    found = [
        msgspec.msgpack.encode((INLINE, "a", 1, 0, 0, False, 0, {}, b"x" + GROUP[:length], extra))
        for extra in extras
        for length in range(len(GROUP) + 1)
    ]
    assert {group for _, group, *_ in world.run(Op(("EVAL", READ, 0, *found)))} == {b""}
