"""Write the table of the monitor's duties in the runbook of failing duties, from the list of duties.

`python tools/generate_duties.py` writes the page, and with `--check` it only reports that it differs (exit status 1).
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "monitor")]

from reliq_monitor.duties import DUTIES  # noqa: E402

TARGET = ROOT / "docs" / "runbooks" / "monitor-duty-failing.md"
HEAD, END = "<!-- tools/generate_duties.py writes this table. -->\n", "<!-- end -->"


def page() -> str:
    """Return the page with the table of all duties."""
    before, _, rest = TARGET.read_text(encoding="utf-8").partition(HEAD)
    _, _, after = rest.partition(END)
    rows = "".join(f"| `{duty.name}` | {duty.effect} |\n" for duty in DUTIES)
    return f"{before}{HEAD}\n| duty | effect while it fails |\n|---|---|\n{rows}\n{END}{after}"


def main() -> int:
    """Write or check the page; return the exit status."""
    text = page()
    if "--check" in sys.argv:
        if TARGET.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{TARGET.name} differs from the list of duties: run `make fix`\n")
            return 1
        return 0
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
