"""Each log line, metric, option and command that a page quotes exists in the source."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliq.cli.main import _parser
from reliq.contract.options import OPTIONS
from reliq_monitor.duties import DUTIES

ROOT = Path(__file__).parents[2]
RUNBOOKS = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_SUFFIXES = ("_total", "_bucket", "_count", "_sum")
_SPAN = re.compile(r"`([^`\n]+)`")
_NO_METRICS = {
    "reliq_api",
    "reliq_runbooks",
    "reliq_queue",
    "reliq_monitor",
    "reliq_handled",
    "reliq_outbox",
    "reliq_server",
    "reliq_outbox_parked",
}


def source(*folders: str) -> str:
    files = (file for folder in folders for file in sorted((ROOT / folder).rglob("*.py")))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


LIBRARY = source("reliq", "monitor/reliq_monitor", "api")
EXPORTERS = source(
    "reliq/contract", "reliq/observability", "reliq/worker", "reliq/features", "monitor/reliq_monitor", "api"
)
COMMANDS = source("reliq/cli", "api", "reliq/spark", "reliq/features") + "".join(f'"--{one.flag}"' for one in OPTIONS)


def quoted(page: Path) -> list[str]:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return _SPAN.findall(text)


def is_exported(metric: str) -> bool:
    names = [metric, *(metric.removesuffix(suffix) for suffix in _SUFFIXES if metric.endswith(suffix))]
    return any(f'"{name}"' in EXPORTERS for name in names)


def unknown_log_lines(spans: list[str]) -> Iterator[str]:
    """`event field=...` and `event:`, as a runbook quotes the lines of a log."""
    for span in spans:
        if re.fullmatch(r"[a-z][a-z_-]*:", span) and span != "reliq:":  # the prefix of all keys
            known = bool(re.search(rf'(OutageLog\(log, |def title.*?return )"{span[:-1]}"', LIBRARY, re.DOTALL))
        elif re.fullmatch(r"(?:[a-z_]+ )?[a-z_]+=\S+(?: [a-z_]+=\S+)*", span) and ("=..." in span or " " in span):
            event, *fields = re.findall(r"(?:^[a-z_]+ )?[a-z_]+(?==)", span)
            patterns = [rf"\b{event}=", *(rf"\b{field.strip()}\b" for field in fields)]
            known = all(re.search(pattern, LIBRARY) for pattern in patterns)
        else:
            continue
        if not known:
            yield span


def test_every_metric_that_a_page_names_is_exported():
    spans = [(page.stem, span) for page in PAGES for span in quoted(page)]
    named = {(page, name) for page, span in spans for name in re.findall(r"\breliq_[a-z_]+\b", span)}
    exported = {name for name in {name for _, name in named} if is_exported(name)}
    assert {(page, name) for page, name in named if name not in _NO_METRICS | exported} == set()


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_every_log_line_that_a_runbook_quotes_is_written(page):
    assert list(unknown_log_lines(quoted(page))) == []


def test_a_log_line_that_is_not_written_is_found():
    spans = [
        "lease_lost queue=...",
        "died worker=... signal=9",
        "heartbeat:",
        "lost queue=...",
        "pulse:",
        "reliq queue stats",
    ]
    assert list(unknown_log_lines(spans)) == ["lost queue=...", "pulse:"]


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_every_command_that_a_runbook_names_is_accepted(page):
    text = page.read_text(encoding="utf-8")
    for line in re.findall(r"(?:`|^\s*\$ )reliq ([a-z][^`\n]*)", text, re.MULTILINE):
        _parser().parse_args(shlex.split(line, comments=True))


def test_every_option_of_reliq_that_a_page_names_exists():
    spans = [(page.stem, one) for page in PAGES for one in quoted(page) if re.match(r"--[a-z]|reliq [a-z]", one)]
    named = {(page, option) for page, span in spans for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", span)}
    foreign = {"--preload", "--master", "--conf", "--py-files", "--processes", "--enable-threads", "--full", "--only"}
    foreign |= {"--rows", "--scale", "--real-time"}
    known = COMMANDS + (ROOT / "tests/campaign/__main__.py").read_text(encoding="utf-8")
    unknown = {option for option in {option for _, option in named} - foreign if f'"{option}"' not in known}
    assert {(page, option) for page, option in named if option in unknown} == set()


def test_the_table_of_duties_names_each_duty_of_the_monitor():
    page = (ROOT / "docs" / "runbooks" / "monitor-duty-failing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE)
    table = {duty for row in rows for duty in _SPAN.findall(row)}
    duties = source("monitor/reliq_monitor") + source("reliq/features")
    assert {duty for duty in table if f'"{duty}"' not in duties} == set()
    constants = re.findall(r"^(?:DUTY|_COMPANY) = \"(.+?)\"", duties, re.MULTILINE)
    calls = re.findall(r"(?:of_all|of_queue|together|having|having_each)\(\s*\"([a-z ]+)\"", duties)
    assert {*constants, *calls, *(duty.name for duty in DUTIES)} <= table


def test_the_table_of_duties_is_that_of_the_list():
    program = [sys.executable, str(ROOT / "tools" / "generate_duties.py"), "--check"]
    assert subprocess.run(program, check=False).returncode == 0


def test_the_page_of_the_audit_names_all_its_terms():
    from reliq.contract.counters import GONE
    from reliq.model.stats import STATES

    _, _, page = (ROOT / "docs" / "operations" / "metrics.md").read_text(encoding="utf-8").partition("## The audit")
    page = page.partition("\n## ")[0]
    terms = {*GONE, *STATES}
    assert {term for term in terms if not re.search(rf"\b{term}\b", page)} == set()
