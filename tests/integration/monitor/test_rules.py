"""Alerts and recording rules: sound, proven firing and not firing, each with a runbook."""

import re
import subprocess
from pathlib import PurePath

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


def runbook(rule):
    """Return the page of an alert in the repository: its link where Prometheus has no label `reliq_runbooks`."""
    (path,) = re.findall(r"{{ else }}(.+){{ end }}", rule["annotations"]["runbook_url"])
    return path


def test_prometheus_accepts_the_rules(promtool):
    checked = run(promtool, "check", "rules", "rules.yml")
    assert checked.returncode == 0, checked.stderr


def test_prometheus_accepts_the_configuration(promtool):
    checked = run(promtool, "check", "config", "--syntax-only", "prometheus.yml")
    assert checked.returncode == 0, checked.stderr


def test_promtool_confirms_every_case_of_the_rules(promtool):
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
    text = (ROOT / runbook(rule)).read_text()
    assert text.startswith(f"# {alert}\n")
    for heading in ("## What it means", "## What to look at", "## What to do"):
        assert heading in text


def test_no_runbook_is_left_without_an_alert():
    pages = {f"docs/runbooks/{path.name}" for path in (ROOT / "docs" / "runbooks").glob("[a-z]*.md")}
    assert pages == {runbook(rule) for rule in ALERTS.values()}


def test_the_links_of_alerts_are_absolute_where_prometheus_has_the_label(promtool, tmp_path):
    site = "https://docs.example.com/reliq/runbooks"
    tests = yaml.safe_load((FOLDER / "rules_test.yml").read_text())
    tests |= {"rule_files": [str(FOLDER / "rules.yml")], "tests": tests["tests"][:1]}
    for test in tests["tests"]:
        test["external_labels"] = {"reliq_runbooks": site}
        for alert in [alert for case in test["alert_rule_test"] for alert in case["exp_alerts"]]:
            page = PurePath(alert["exp_annotations"]["runbook_url"]).stem
            alert["exp_annotations"]["runbook_url"] = f"{site}/{page}.html"
    (tmp_path / "absolute.yml").write_text(yaml.safe_dump(tests))
    tested = run(promtool, "test", "rules", str(tmp_path / "absolute.yml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr
