"""Run a scenario with a changed setup: SCENARIO VOLUME SEED FOLDER SETUP; the last and the outcome are JSON."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import reliq
from reliq.errors import ReliqError
from tests.campaign import faults, run, scenarios


def main(name, volume, seed, folder, setup):
    run._HEALED = faults._RESUMED = 8.0
    scenario = scenarios.named(name)
    assert scenario is not None
    scenario = replace(scenario, setup=replace(scenario.setup, **json.loads(setup)), full_setup=None)
    outcome = run.run(scenario, int(seed), int(volume), 30.0, Path(folder), full=True)  # promises a quick recovery
    print(json.dumps({**outcome.as_dict(), "tree": str(Path(reliq.__file__).parent)}))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ReliqError as error:
        sys.exit(f"the campaign itself noticed: {error}")
