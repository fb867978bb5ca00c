"""Variables of the environment that are on or off."""

import os
from collections.abc import Mapping

from reliq.errors import InvalidSetting

_ON, _OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


def flag(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a variable is on; raises InvalidSetting for a value that is neither on nor off."""
    if not is_on(name, environment) and _value(name, environment) not in _OFF:
        raise InvalidSetting(f"{name} is {environment[name]!r}: set it to 1, or to 0")
    return is_on(name, environment)


def is_on(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a variable is on; what is neither on nor off is off."""
    return _value(name, environment) in _ON


def _value(name: str, environment: Mapping[str, str]) -> str:
    return environment.get(name, "").strip().lower()
