"""Notices: RESP 3 is read in whatever pieces it arrives."""

import pytest

from reliq.transport.notices import parsed

HELLO = b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$2\r\nid\r\n:7\r\n"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$2\r\nbb\r\n", [b"invalidate", [b"a", b"bb"]]),
        (b">2\r\n$10\r\ninvalidate\r\n_\r\n", [b"invalidate", None]),
        (HELLO, {b"server": b"redis", b"id": 7}),
        (b"+OK\r\n", b"OK"),
        (b"-ERR no\r\n", b"ERR no"),
        (b"*0\r\n", []),
        (b"$-1\r\n", None),
    ],
)
def test_a_value_is_read_only_when_it_is_whole(data, value):
    for size in range(len(data)):
        assert parsed(data[:size], 0) is None
    assert parsed(b"..." + data + b"+more\r\n", 3) == (value, 3 + len(data))


def test_what_is_not_resp_is_refused():
    with pytest.raises(ValueError, match="not RESP 3"):
        parsed(b"HTTP/1.1 400\r\n", 0)
