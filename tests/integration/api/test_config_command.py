"""`reliq queue config`: a queue's policy from the command line."""

import json

import pytest

from reliq.contract.keywords import Config
from tests.integration.api.test_keys import reliq


def test_a_policy_is_shown_and_changed(url, app):
    app.queue("orders").send("x")
    assert json.loads(reliq(url, "config", "orders", "--json").stdout)["max_bytes"] is None
    changed = reliq(url, "config", "orders", "max_bytes=2097152", "dead_max_age=30d", "--json")
    assert json.loads(changed.stdout)["max_bytes"] == 2_097_152
    assert app.queue("orders").config() == Config(max_bytes=2_097_152, dead_max_age=30 * 86_400)
    assert "max_bytes        -" in reliq(url, "config", "orders", "max_bytes=").stdout


@pytest.mark.parametrize(
    "change", ["max_bytes=5", "max_bytes=x", "unknown=1", "round=", "prioritised=", "max_bytes", "durability=sure"]
)
def test_what_makes_no_sense_changes_nothing(url, app, change):
    refused = reliq(url, "config", "orders", "max_length=5", change)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert app.queue("orders").config() == Config()
