"""A copy of the tree, in which the recipes of docs/concepts/architecture.md are followed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("reliq", "api", "monitor/reliq_monitor", "tools", "docs/operations", "docs/runbooks")


class Copy:
    """The copy; `edited` has the files that were changed by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.edited: list[str] = []
        for folder in FOLDERS:  # with what is compiled, but for what another process compiles just now
            shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("*.pyc.*"))

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace what occurs once in a file."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")
        self.edited.append(name)

    def write(self, name: str, text: str) -> None:
        """Write a new file."""
        assert not (self.root / name).exists()
        (self.root / name).write_text(text, encoding="utf-8")
        self.edited.append(name)

    def run(self, *arguments: str) -> None:
        """Run Python in the copy."""
        path = os.pathsep.join(str(self.root / one) for one in ("", "api", "monitor"))
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.root, env={**os.environ, "PYTHONPATH": path},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def generate(self, *tools: str) -> None:
        """Write anew what is generated, as `make fix` does."""
        for tool in tools:
            self.run(f"tools/generate_{tool}.py")
