"""`reliq chaos`: a test of the guarantees on the user's own machine."""

import argparse
import json
import secrets
import sys
from pathlib import Path
from typing import Any

from reliq.cli.options import BAD_USAGE, command
from reliq.contract import values
from reliq.errors import InvalidSetting


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    one = command(
        commands,
        "chaos",
        chaos,
        "kill and pause workers while they handle messages: is anything lost?",
        json_too=True,
        url_default="an embedded one",
    )
    one.add_argument("--messages", type=int, default=10_000, metavar="N", help="how many are sent (default 10000)")
    one.add_argument("--workers", type=int, default=4, metavar="N", help="worker processes (default 4)")
    one.add_argument("--kills", type=int, default=10, metavar="N", help="workers that get SIGKILL (default 10)")
    one.add_argument("--pauses", type=int, default=2, metavar="N", help="stopped until past their lease (default 2)")
    one.add_argument("--lease", type=float, default=2.0, metavar="SECONDS", help="of the workers (default 2)")
    one.add_argument("--time", type=float, default=300.0, metavar="SECONDS", help="time limit (default 300)")
    one.set_defaults(quiet=True, patient=True)
    campaign = one.add_argument_group(
        "one fault of the campaign", "on a Redis of its own; the options above have no meaning then, but --json"
    )
    campaign.add_argument("--scenario", metavar="NAME", help="the fault to cause; `list` shows all of them")
    campaign.add_argument("--seed", type=int, metavar="N", help="of the faults and the load (default: a random one)")
    campaign.add_argument("--volume", type=int, metavar="N", help="how many faults, or messages (default: a few)")
    campaign.add_argument("--duration", type=float, default=600.0, metavar="SECONDS", help="no faults after that time")
    campaign.add_argument("--full", action="store_true", help="the volume of `make faults`")
    campaign.add_argument(
        "--older", type=Path, metavar="FOLDER",
        help="for rolling-upgrade: another version of reliq (`pip install --no-deps --target FOLDER reliq==VERSION`)",
    )  # fmt: skip
    campaign.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the histories and the dump there")


def chaos(options: argparse.Namespace) -> int:
    """Kill and pause workers, and report; exit 1 if a message was lost or not handled in time."""
    if options.scenario is not None:
        return _scenario(options)
    from reliq.cli.trials.chaos import Plan, run

    plan = Plan(options.messages, options.workers, options.kills, options.pauses, options.lease, options.time)
    report = run(options.url, plan)
    print(json.dumps(report.as_dict()) if options.json else report)
    if report.good and not options.json:
        print("\nNothing was lost.")
    elif not report.good:
        print("reliq: not every message was handled", file=sys.stderr)
    return 0 if report.good else 1


def _scenario(options: argparse.Namespace) -> int:
    """Run one scenario of the campaign; exit 1 if a promise was broken."""
    import tempfile

    from reliq.cli.trials.campaign.report import table, text
    from reliq.cli.trials.campaign.run import run
    from reliq.cli.trials.campaign.scenarios import SCENARIOS, named

    if options.scenario == "list":
        print(table(SCENARIOS))
        return 0
    scenario = named(options.scenario)
    if scenario is None:
        print(
            f"reliq: scenario {options.scenario!r} is unknown: `reliq chaos --scenario list` shows all", file=sys.stderr
        )
        return BAD_USAGE
    if options.url:
        raise InvalidSetting("a scenario breaks its Redis, and so starts one of its own: leave out --url")
    if scenario.needs_older != bool(options.older):
        raise InvalidSetting(
            f"{scenario.name} needs another version of reliq: name its folder with --older"
            if scenario.needs_older
            else f"{scenario.name} runs this version only: leave out --older"
        )
    volume = options.volume or (scenario.full if options.full else scenario.volume)
    values.whole(volume, "volume", 1, 10_000_000)
    values.seconds(options.duration, "duration", 1.0, 86_400.0)
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    print(f"{scenario.name}: {volume:,} {scenario.unit}, seed {seed}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="reliq-campaign-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InvalidSetting(
                f"--keep {folder} is not empty: the checker reads all that is there; name a new folder"
            )
        outcome = run(scenario, seed, volume, options.duration, folder, options.full, options.older)
    print(json.dumps(outcome.as_dict()) if options.json else text(scenario, outcome))
    if not outcome.good:
        print("reliq: a promise was broken", file=sys.stderr)
    return 0 if outcome.good else 1
