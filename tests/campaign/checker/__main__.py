"""Judge the folder of a campaign and print the verdict as JSON; exit 1 if a promise is broken."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.campaign.checker.reading import Evidence
from tests.campaign.checker.verdict import judge


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or not (Path(arguments[0]) / "run.json").exists():
        print("usage: python -m tests.campaign.checker FOLDER, with the files of a campaign", file=sys.stderr)
        return 2
    verdict = judge(Evidence(Path(arguments[0])))
    print(json.dumps(verdict))
    return 0 if verdict["valid"] else 1


sys.exit(main(sys.argv[1:]))
