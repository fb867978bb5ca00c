"""Tokens: bytes as text that fits into an address."""

import base64


def as_token(data: bytes) -> str:
    """Return the bytes as URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def read_token(token: str) -> bytes:
    """Return the bytes of a token; raises ValueError for a text that is none."""
    return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
