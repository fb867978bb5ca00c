"""Alerts and recording rules: sound, proven firing and not firing, each with a runbook."""

import subprocess

import pytest
import yaml

from tests.integration.monitor.conftest import ROOT

FOLDER = ROOT / "monitor" / "prometheus"
RULES = [rule for group in yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
CASES = [
    case
    for test in yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
    for case in test["alert_rule_test"]
]


def run(promtool, *arguments):
    return subprocess.run([promtool, *arguments], check=False, cwd=FOLDER, capture_output=True, text=True, timeout=60)


def test_prometheus_accepts_the_rules(promtool):
    checked = run(promtool, "check", "rules", "rules.yml")
    assert checked.returncode == 0, checked.stderr


def test_prometheus_accepts_the_configuration(promtool):
    checked = run(promtool, "check", "config", "--syntax-only", "prometheus.yml")
    assert checked.returncode == 0, checked.stderr


def test_every_case_holds(promtool):
    tested = run(promtool, "test", "rules", "rules_test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_proven_to_fire_and_not_to(alert):
    firing = [case["exp_alerts"] for case in CASES if case["alertname"] == alert]
    assert any(firing)
    fires_for_one_of_several = "queue" in ALERTS[alert]["expr"].partition("by (")[2][:6]
    assert any(not alerts for alerts in firing) or fires_for_one_of_several


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_severity_a_summary_and_a_runbook_that_says_what_to_do(alert):
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"].endswith(".")
    text = (ROOT / rule["annotations"]["runbook_url"]).read_text()
    assert text.startswith(f"# {alert}\n")
    for heading in ("## What it means", "## What to look at", "## What to do"):
        assert heading in text


def test_no_runbook_is_left_without_an_alert():
    pages = {f"docs/runbooks/{path.name}" for path in (ROOT / "docs" / "runbooks").iterdir()}
    assert pages == {rule["annotations"]["runbook_url"] for rule in ALERTS.values()}
