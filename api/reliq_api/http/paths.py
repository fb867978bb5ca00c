"""Paths of requests, whose segments may have a slash: an id such as `order/7` is sent as `order%2F7`."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

_SLASH = "\x1f"  #: stands for a slash within a segment, until a route has matched: no name and no id has this character
_ENCODED = re.compile("%2f", re.IGNORECASE)


def decoded(path: str) -> str:
    """Return a path as routes read it."""
    return unquote(_ENCODED.sub(_SLASH, path)) if "%" in path else path


def restored(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a route as the client has sent them."""
    return {name: one.replace(_SLASH, "/") if isinstance(one, str) else one for name, one in parameters.items()}
