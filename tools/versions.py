"""Other versions of reliq, from the history of this repository."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEFORE_PARTITIONS = "96e58d5b4a"  #: the last commit whose queues have no partitions


def sources(commit: str, folder: Path) -> Path:
    """Write the packages of a commit into a folder; return it. Raises LookupError without git or without the commit."""
    read, unpack = ["git", "archive", commit, "reliq", "monitor", "api"], ["tar", "-x"]
    try:
        archive = subprocess.run(read, cwd=ROOT, capture_output=True, check=True)
    except FileNotFoundError:
        raise LookupError("older versions are read from the git history, and there is no git here") from None
    except subprocess.CalledProcessError as error:
        raise LookupError(f"{commit} is not in the git history here: {error.stderr.decode().strip()}") from None
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(unpack, cwd=folder, input=archive.stdout, check=True)
    return folder
