"""What a misspelt word was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST = 200  #: characters; comparing longer ones is slow


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the known word that is most like this one; None if none is like it."""
    near = get_close_matches(word, known, 1, likeness) if len(word) <= _LONGEST else ()
    return near[0] if near else None
