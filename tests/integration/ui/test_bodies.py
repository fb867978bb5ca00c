import pytest

from reliq_api.ui.bodies import HEX_LARGEST, TEXT_LARGEST, shown


def test_json_is_laid_out_without_changing_a_digit_or_dropping_a_repeated_name():
    body = shown(b'{"price":1.0e5,"id":12345678901234567890123,"id":[1]}')
    assert body.kind == "json"
    assert body.text.splitlines() == [
        "{",
        '  "price": 1.0e5,',
        '  "id": 12345678901234567890123,',
        '  "id": [',
        "    1",
        "  ]",
        "}",
    ]


def test_text_that_is_no_json_is_shown_as_it_is():
    assert shown("Grüße,\n\tAda".encode()).text == "Grüße,\n\tAda"


@pytest.mark.parametrize("body", [b"\x89PNG\r\n\x1a\n", b"text with a \x00 in it", b"\x1b[31mred\x1b[0m"])
def test_what_is_no_text_is_shown_in_hex(body):
    assert shown(body).kind == "binary"


def test_hex_has_place_bytes_and_letters():
    rows = shown(bytes(range(0xF8, 0x100)) + b"reliq<b>!").text.splitlines()
    assert rows == [
        "00000000  f8 f9 fa fb fc fd fe ff 72 65 6c 69 71 3c 62 3e  ........reliq<b>",
        "00000010  21                                               !",
    ]


def test_what_is_too_long_is_cut_and_says_so():
    text, binary = shown(b"x" * (TEXT_LARGEST + 1)), shown(b"\xff" * (HEX_LARGEST + 1))
    assert text.cut and len(text.text) == TEXT_LARGEST
    assert binary.cut and len(binary.text.splitlines()) == HEX_LARGEST // 16
    assert not shown(b"x" * TEXT_LARGEST).cut


def test_an_empty_body_is_neither():
    assert shown(b"").kind == "empty"


def test_json_nested_without_end_is_text():
    assert shown(b"[" * 100_000).kind == "text"


@pytest.mark.parametrize("kept", range(5, 13))
def test_the_start_of_a_larger_text_is_text_wherever_it_ends(kept):
    body = "Grüße aus 東京".encode()
    start = shown(body[:kept], len(body))
    assert (start.kind, start.cut) == ("text", True)
    assert body.decode().startswith(start.text)
    assert shown(b'{"a": 1', 100).kind == "text"
    assert shown(b"\xff\xfe", 100).kind == "binary"
