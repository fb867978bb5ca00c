"""Commands encoded in Redis' protocol: the bytes, and that large ones are not copied."""

import pytest
from redis.connection import Connection

from reliq.ops import Packed
from reliq.transport.resp import _LARGE, pack

SIZES = [0, 1, 200, 1024, 1025, 4096, _LARGE, _LARGE + 1, 3 * _LARGE]


def element(size):
    return bytes(range(256)) * (size // 256) + b"x" * (size % 256)


def by_redis_py(*commands):
    packed = Connection().pack_commands(commands)
    return b"".join(packed)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 2, 40])
def test_the_bytes_are_those_of_redis_py(size, count):
    commands = [("LPUSH", "reliq:{orders}:messages", *[element(size)] * count), ("EVALSHA", "abc", 2, "k", "l", 7, "é")]
    assert b"".join(pack(commands)) == by_redis_py(*commands)


def test_small_and_large_arguments_in_turn():
    command = ("EVALSHA", "abc", 1, "key", *[element(size) for size in (*SIZES, *reversed(SIZES))])
    assert b"".join(pack([command])) == by_redis_py(command)


def test_a_large_argument_is_sent_without_a_copy():
    large = element(_LARGE + 1)
    assert [part for part in pack([("SET", "a", large, "XX")]) if part is large] == [large]


def test_small_arguments_are_sent_together():
    assert len(pack([("LPUSH", "key", *[element(_LARGE)] * 40), ("PING",)])) == 1


def test_packed_arguments_count_as_what_they_hold():
    frames = b"".join(b"$%d\r\n%b\r\n" % (len(one), one) for one in (element(300), element(70_000)))
    packed = pack([("LPUSH", "key", Packed(2, (memoryview(frames),)))])
    assert b"".join(packed) == by_redis_py(("LPUSH", "key", element(300), element(70_000)))
