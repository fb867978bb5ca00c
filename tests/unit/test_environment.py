"""Variables of the environment: what is read from them, and errors that name them."""

from pathlib import Path

import pytest

from reliq.embedded import data_folder
from reliq.errors import InvalidSetting
from reliq.protocol.application import eviction_allowed, reconnect_grace
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


def test_the_reconnect_grace_is_the_given_one_or_that_of_the_variable_or_five_seconds():
    variable = {"RELIQ_RECONNECT_GRACE": "1m"}
    assert reconnect_grace("2s", environment=variable) == 2
    assert reconnect_grace(None, environment=variable) == 60
    assert (
        reconnect_grace(None, environment={"RELIQ_RECONNECT_GRACE": ""}) == reconnect_grace(None, environment={}) == 5
    )


@pytest.mark.parametrize("wrong", ["abc", "-1", "1y"])
def test_a_wrong_reconnect_grace_is_told_with_its_name(wrong):
    with pytest.raises(InvalidSetting, match=f"^RELIQ_RECONNECT_GRACE is '{wrong}': "):
        reconnect_grace(None, "--reconnect-grace", {"RELIQ_RECONNECT_GRACE": wrong})
    with pytest.raises(InvalidSetting, match=f"^--reconnect-grace is '{wrong}': "):
        reconnect_grace(wrong, "--reconnect-grace", {"RELIQ_RECONNECT_GRACE": "1s"})


def test_an_empty_variable_for_the_data_folder_is_none(monkeypatch):
    monkeypatch.setenv("RELIQ_DATA", "")
    assert data_folder() == Path(".data") / "redis"
