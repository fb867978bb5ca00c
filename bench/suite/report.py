"""The results as a table, as JSON and as a plot."""

import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import redis

import reliq
from bench.suite.consume import Race
from bench.suite.contestants import BENCH, PEERS
from bench.suite.harness import Row, Setting, shown
from reliq.embedded import find_server


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in _read("/proc/cpuinfo").splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    server = subprocess.run([find_server(), "--version"], capture_output=True, text=True, check=True).stdout.split()
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load": " ".join(_read("/proc/loadavg").split()[:3]),
        "system": platform.platform(),
        "python": platform.python_version(),
        "redis": " ".join(part for part in server if part.startswith("v=")),
        "redis-py": redis.__version__,
        "reliq": reliq.__version__,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def text(rows: list[Row], race: Race | None, about: dict[str, Any], seconds: float) -> str:
    """The whole report, as it is printed."""
    lines = [*(f"{name:10} {value}" for name, value in about.items()), f"{'took':10} {seconds:.0f} s", ""]
    for row in rows:
        lines.append(f"[{row.verdict:^6}] {row.what}")
        lines += [f"           {check}" for check in row.checks]
        lines += [f"           {note}" for note in row.notes]
    met = sum(row.verdict == "ok" for row in rows)
    lines += ["", f"{met} of {len(rows)} rows reached"]
    return "\n".join([*lines, *_field(race)]) + "\n"


def _field(race: Race | None) -> list[str]:
    if race is None or not race.rates:
        return []
    lines = ["", f"{'consume, messages/s':26} {'median (min..max)':32} crash-safe; settings; versions"]
    for name, rates in sorted(race.rates.items(), key=lambda one: -statistics.median(one[1])):
        about = race.about[name]
        versions = " ".join(f"{package} {version or '-'}" for package, version in about["versions"].items())
        lines.append(f"{name:26} {shown(rates):32} {about['crash_safe']}; {about['settings']}; {versions}")
    return lines + [f"{name:26} {why}" for name, why in race.absent.items()]


def save(rows: list[Row], race: Race | None, about: dict[str, Any], setting: Setting, folder: Path) -> None:
    """results.json, and consume.svg where matplotlib is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": about,
        "setting": {"full": setting.full, "rounds": setting.rounds, "scale": setting.scale},
        "rows": [row.as_dict() for row in rows],
        "consume": race.rates if race else {},
        "contestants": race.about if race else {},
        "absent": race.absent if race else {},
    }
    (folder / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    if race is not None and race.rates:
        _plot(folder)


def _plot(folder: Path) -> None:
    python = PEERS / "python" / "bin" / "python"
    command = [str(python), str(BENCH / "plot.py"), str(folder / "results.json"), str(folder / "consume.svg")]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no plot: {error}")
