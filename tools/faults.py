"""Run the fault campaign in full, row by row, and keep what came out of each row in a file.

    python tools/faults.py [--only NAME,...] [--again] [--seed 19] [--duration 1800] [--scale 0.1] [--out FILE]

A row that this commit has passed in full is left out, so the run goes on where it was interrupted.
`tools/reliability.py` makes the page from the file.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.campaign.scenarios import SCENARIOS, Scenario
from tools.versions import BEFORE_PARTITIONS, ROOT, sources

RESULTS = ROOT / "docs/operations/reliability.json"
_POINTS = 100  #: of the distribution of recovery times


def read(path: Path) -> dict[str, Any]:
    """Return what the file has: `rows`, and `notes` on them by the people who ran them."""
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"notes": [], "rows": []}
    return kept


def commit() -> str:
    """Return the commit of this checkout, with a + if files were changed since."""
    command = ["git", "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def campaign(scenario: Scenario, seed: int, volume: int, duration: float) -> dict[str, Any] | None:
    """Run one row; return what the file keeps of it, None if it could not be run. The histories of a failure stay."""
    command = [
        sys.executable, "-m", "tests.campaign", "--scenario", scenario.name, "--full", "--json",
        "--seed", str(seed), "--volume", str(volume), "--duration", str(duration),
    ]  # fmt: skip
    histories = Path(tempfile.mkdtemp(prefix=f"reliq-{scenario.name}-"))
    command += ["--keep", str(histories)]
    with tempfile.TemporaryDirectory() as folder:
        if scenario.needs_older:
            command += ["--older", str(sources(BEFORE_PARTITIONS, Path(folder)))]
        done = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"{scenario.name}: the histories are in {histories}", flush=True)
    else:
        shutil.rmtree(histories)
    if not done.stdout:
        return None
    row: dict[str, Any] = json.loads(done.stdout)
    times = row["verdict"].pop("recoveries")
    row["recoveries"] = [times[place * (len(times) - 1) // _POINTS] for place in range(_POINTS + 1)] if times else []
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME,...")
    parser.add_argument("--again", action="store_true", help="also rows that this commit has passed in full")
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--duration", type=float, default=1800.0, help="seconds a row may cause faults")
    parser.add_argument("--scale", type=float, default=1.0, help="of the volumes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows, at = read(options.out)["rows"], commit()
    failed = False
    for scenario in SCENARIOS:
        if options.only and scenario.name not in options.only.split(","):
            continue
        known = next((one for one in rows if one["scenario"] == scenario.name), None)
        if known and not options.again and known["good"] and known["commit"] == at and known["done"] >= scenario.full:
            print(f"{scenario.name}: done before", flush=True)
            continue
        began = time.monotonic()
        row = campaign(scenario, options.seed, max(1, round(scenario.full * options.scale)), options.duration)
        if row is None:
            print(f"{scenario.name}: could not be run", flush=True)
            failed = True
            continue
        row |= {"commit": at, "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), "full": scenario.full}
        failed |= not row["good"]
        kept = read(options.out)
        rows = kept["rows"] = [one for one in kept["rows"] if one["scenario"] != scenario.name] + [row]
        options.out.write_text(json.dumps(kept, indent=1) + "\n")
        print(f"{scenario.name}: {'passed' if row['good'] else 'FAILED'}, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
