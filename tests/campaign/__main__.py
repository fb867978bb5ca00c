"""Run one row of the fault campaign, on a Redis of its own: `python -m tests.campaign --scenario sigkill --seed 7`."""

import argparse
import contextlib
import json
import secrets
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from reliq.contract import values
from reliq.errors import InvalidSetting, ReliqError
from tests.campaign.report import table, text
from tests.campaign.run import run
from tests.campaign.scenarios import SCENARIOS, Scenario, named

_PROGRAM = "python -m tests.campaign"
_BROKEN, _BAD_USAGE, _INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a scenario; return 0 if every promise was kept, 1 if not, 2 for wrong usage, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        return _scenario(options)
    except ReliqError as error:
        print(f"campaign: {error}", file=sys.stderr)
        return _BAD_USAGE if isinstance(error, ValueError) else _BROKEN
    except KeyboardInterrupt:
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_PROGRAM, description=__doc__)
    parser.add_argument(
        "--scenario", metavar="NAME", required=True, help="the fault to cause; `list` shows all of them"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the faults and the load (default: a random one)")
    parser.add_argument("--volume", type=int, metavar="N", help="how many faults, or messages (default: a few)")
    parser.add_argument("--duration", type=float, default=600.0, metavar="SECONDS", help="no faults after that time")
    parser.add_argument("--full", action="store_true", help="the volume of `make faults`")
    parser.add_argument(
        "--older", type=Path, metavar="FOLDER",
        help="for rolling-upgrade: another version of reliq (`pip install --no-deps --target FOLDER reliq==VERSION`)",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the histories and the dump there")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _scenario(options: argparse.Namespace) -> int:
    if options.scenario == "list":
        print(table(SCENARIOS))
        return 0
    scenario = _checked(options)
    volume = options.volume or (scenario.full if options.full else scenario.volume)
    values.whole(volume, "volume", 1, 10_000_000)
    values.seconds(options.duration, "duration", 1.0, 86_400.0)
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    print(f"{scenario.name}: {volume:,} {scenario.unit}, seed {seed}", file=sys.stderr, flush=True)
    with _folder(options.keep) as folder:
        outcome = run(scenario, seed, volume, options.duration, folder, options.full, options.older)
    print(json.dumps(outcome.as_dict()) if options.json else text(scenario, outcome))
    if not outcome.good:
        print("campaign: a promise was broken", file=sys.stderr)
    return 0 if outcome.good else _BROKEN


def _checked(options: argparse.Namespace) -> Scenario:
    """Return the scenario, if it can be run with these options."""
    scenario = named(options.scenario)
    if scenario is None:
        raise InvalidSetting(f"scenario {options.scenario!r} is unknown: `{_PROGRAM} --scenario list` shows all")
    if scenario.needs_older != bool(options.older):
        raise InvalidSetting(
            f"{scenario.name} needs another version of reliq: name its folder with --older"
            if scenario.needs_older
            else f"{scenario.name} runs this version only: leave out --older"
        )
    return scenario


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    """Provide the folder of the histories: an empty one to be kept, or a temporary one."""
    with tempfile.TemporaryDirectory(prefix="reliq-campaign-") as temporary:
        folder = kept or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InvalidSetting(f"--keep {folder} is not empty: the checker reads all that is in it; name a new one")
        yield folder


if __name__ == "__main__":
    sys.exit(main())
