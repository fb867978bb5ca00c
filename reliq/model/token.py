"""Tokens: bytes as text that fits into an address."""

import binascii

_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")


def as_token(data: bytes) -> str:
    """Return the bytes as URL-safe base64 without padding."""
    return binascii.b2a_base64(data, newline=False).translate(_TO_URL).rstrip(b"=").decode()


def read_token(token: str) -> bytes:
    """Return the bytes of a token; raises ValueError for a text that is none."""
    text = token.encode("ascii").translate(_FROM_URL)
    return binascii.a2b_base64(text + b"=" * (-len(text) % 4), strict_mode=True)
