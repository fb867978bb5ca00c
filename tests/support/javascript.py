"""Node.js with the packages of tools/sqs_clients: the SDK of JavaScript, and what is built on it."""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]  # the campaign imports this into other versions of reliq, which lack what tests have
CLIENTS = ROOT / "tools" / "sqs_clients"
_PACKAGES = ROOT / ".data" / "npm"


def folder(install: bool = False) -> Path:
    """Return the folder with the packages and the programs of tools/sqs_clients. Raises LookupError without them."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise LookupError("there is no npm")
    if install:
        _PACKAGES.mkdir(parents=True, exist_ok=True)
        shutil.copy(CLIENTS / "package.json", _PACKAGES)
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"],
            cwd=_PACKAGES, capture_output=True, text=True, timeout=1200, check=False,
        )  # fmt: skip
        if done.returncode:
            raise LookupError(f"npm cannot install the packages: {done.stderr.strip()[-300:]}")
    if not (_PACKAGES / "node_modules" / "@aws-sdk" / "client-sqs").is_dir():
        raise LookupError("the SDK of JavaScript is not installed: `make test-sqs` does it")
    for one in CLIENTS.glob("*.mjs"):  # Node.js looks for packages beside a program
        shutil.copy(one, _PACKAGES)
    return _PACKAGES
