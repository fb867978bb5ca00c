"""Variables of the environment that are on or off."""

import pytest

from reliq.errors import InvalidSetting
from reliq.protocol.application import eviction_allowed
from reliq.runtime.environment import flag, is_on


@pytest.mark.parametrize("text", ["1", "true", "True", "yes", "on", " 1 "])
def test_what_is_on(text):
    assert flag("RELIQ_X", {"RELIQ_X": text}) is is_on("RELIQ_X", {"RELIQ_X": text}) is True
    assert eviction_allowed(None, {"RELIQ_ALLOW_EVICTION": text})


@pytest.mark.parametrize("environment", [{}, *({"RELIQ_X": text} for text in ("", "0", "false", "No", "off"))])
def test_what_is_off(environment):
    assert flag("RELIQ_X", environment) is is_on("RELIQ_X", environment) is False


def test_anything_else_is_refused_with_its_name():
    with pytest.raises(InvalidSetting, match=r"^RELIQ_X is 'ture': set it to 1, or to 0$"):
        flag("RELIQ_X", {"RELIQ_X": "ture"})
    assert not is_on("RELIQ_X", {"RELIQ_X": "ture"})
