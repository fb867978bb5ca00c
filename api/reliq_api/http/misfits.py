"""What is said of JSON that msgspec refuses for its types: place, value and what it must be, as `faults` says it."""

import re
from collections.abc import Mapping

import msgspec

from reliq_api.http.faults import must_be

_FOUND = re.compile(
    r"(?:Expected `(?P<type>.+?)`, got `.+?`|Object missing required field `(?P<missing>.+?)`|Invalid enum value .+?)"
    r"(?: - at `\$(?P<place>.*?)`)?",
    re.DOTALL,
)
_PART = re.compile(r"[^.\[\]]+")
_INSIDE = "[...]"  #: of an object with any names, which msgspec does not tell
_OF_TYPE = {
    "str": "a text",
    "int": "a whole number",
    "int | float": "a whole number",
    "object": "an object",
    "array": "an array",
}


def misfit(error: msgspec.ValidationError, text: bytes, what: str, must: Mapping[str, str]) -> str:
    """Return what is wrong with a text of JSON, which can be read as such.

    `what` it is, such as "the message"; `must`: what members must be, by their names, where the type says too little.
    """
    found = _FOUND.fullmatch(str(error))
    if found is None:
        return f"{what} cannot be read: {error}"
    place = _PART.findall((found["place"] or "").partition(_INSIDE)[0])
    if found["missing"]:
        return f"{'.'.join([*place, found['missing']])} is missing"
    value = msgspec.json.decode(text)
    for part in place:
        value = value[int(part)] if isinstance(value, list) else value[part]
    wanted = (found["type"] or "").removesuffix(" | null")
    return must_be(".".join(place) or what, value, must.get(place[-1] if place else "") or _OF_TYPE.get(wanted, wanted))
