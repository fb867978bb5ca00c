"""Generate the synchronous API, reliq/client, from the asyncio API, reliq/aio; in slices client.py from aio.py.

The asyncio source is the one to edit. `python tools/generate_sync.py` writes the synchronous files, and with `--check`
it only reports those that differ (exit status 1). Docstrings are translated like code, so write an example as
`await queue.send(...)`, and word the rest so that it is true of both.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path("reliq/aio")
TARGET = Path("reliq/client")
FEATURES = Path("reliq/features")  #: a slice has both faces side by side
#: A task renews a lease, or a thread; one of them waits; only a task is cancelled.
WRITTEN_BY_HAND = ("__init__", "heartbeat", "home_waiter", "unbroken")

# In this order. A difference that needs more than a word belongs into reliq.protocol, which both share.
REPLACEMENTS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\bawait ", ""),
        (r"\basync (?=def\b|with\b|for\b)", ""),
        (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
        (r"(?m)^from reliq\.runtime\.blocks import AsyncBlock\n", ""),
        (r"\(AsyncBlock\)|\bAsyncBlock, ", ""),
        (r"\bAwaitable\[None\]", "None"),
        (r"\bAwaitable, ", ""),
        (r"\bAsyncIterator\b", "Iterator"),
        (r"\basynccontextmanager\b", "contextmanager"),
        (r"\bAioStore\b", "Store"),
        (r"\bAioConnection\b", "Connection"),
        (r"\breliq\.transport\.aio_connection\b", "reliq.transport.connection"),
        (r"\breliq\.transport\.aiostore\b", "reliq.transport.store"),
        (r"\bfrom reliq\.aio\.", "from reliq.client."),
        (r"\bfrom (reliq\.features\.\w+)\.aio\b", r"from \1.client"),
        (r"<aio\.", "<"),  # of a repr
    )
)


def modules() -> dict[str, str]:
    """Return the files that are generated, each with the one that it is generated from; as texts, below the root."""
    names = {path.stem for path in (ROOT / SOURCE).glob("*.py")} - set(WRITTEN_BY_HAND)
    found = {TARGET / f"{name}.py": SOURCE / f"{name}.py" for name in names}
    slices = [path.relative_to(ROOT) for path in (ROOT / FEATURES).glob("*/aio.py")]
    found |= {path.with_name("client.py"): path for path in slices}
    return {target.as_posix(): source.as_posix() for target, source in sorted(found.items())}


def translated(source: str) -> str:
    """Return the synchronous form of asyncio source code, not formatted yet."""
    for pattern, replacement in REPLACEMENTS:
        source = pattern.sub(replacement, source)
    return source


def formatted(code: str, path: Path) -> str:
    """Sort the imports and lay out the code as `make fix` does."""
    for command in (["check", "--quiet", "--fix", "--select", "I"], ["format", "--quiet"]):
        arguments = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(path), "-"]
        code = subprocess.run(arguments, input=code, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return code


def generated(target: str, source: str) -> str:
    """Return the text of a synchronous module."""
    header = f"# Generated from {source} by tools/generate_sync.py: do not edit\n"
    return header + formatted(translated((ROOT / source).read_text()), Path(target))


def main(arguments: list[str]) -> int:
    """Write the modules that differ; with `--check` name them on stderr and return 1."""
    check_only = "--check" in arguments
    differing = []
    for target, source in modules().items():
        path, text = ROOT / target, generated(target, source)
        if not path.exists() or path.read_text() != text:
            differing.append(target)
            if not check_only:
                path.write_text(text)
    if differing and check_only:
        sys.stderr.write(f"{', '.join(differing)} differ from their asyncio form: edit that, then run `make fix`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
