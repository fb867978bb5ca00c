"""The picture of the README: what `reliq demo` prints, as an animated SVG without script. `make recording` draws it.

The command really runs. The picture shows its lines as they came; pauses of more than a second are shortened. Who has
asked the browser for less motion sees the last state at once.
"""

import html
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "assets" / "demo.svg"
COMMAND = "reliq demo --files 300"
_LONGEST_PAUSE = 1.0  # seconds
_HOLD = 6.0  # seconds for which the last state stays
_WIDTH = 84  # columns
_LINE, _COLUMN, _EDGE = 20, 8.43, 16  # pixels

Line = tuple[float, str]  # seconds after the start, text


def recorded(arguments: list[str]) -> Iterable[Line]:
    """Run `reliq` of this checkout, and yield its lines with their times."""
    started, waited, latest = time.monotonic(), 0.0, 0.0
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "reliq", *arguments], cwd=ROOT, text=True, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            now = time.monotonic() - started
            waited += max(0.0, now - latest - _LONGEST_PAUSE)
            latest = now
            line = line.rstrip().replace(str(Path.home()), "~")
            yield from ((now - waited, part) for part in textwrap.wrap(line, _WIDTH, subsequent_indent="  ") or [""])
    if process.returncode:
        raise SystemExit(f"reliq {' '.join(arguments)} ended with status {process.returncode}")


def drawn(command: str, lines: list[Line]) -> str:
    """Return the SVG: each line appears at its time, and the whole repeats."""
    length = lines[-1][0] + _HOLD
    width = round(2 * _EDGE + _COLUMN * max(len(text) for _, text in [*lines, (0.0, f"$ {command}")]))
    height = 2 * _EDGE + _LINE * (len(lines) + 1)
    shown = [_text(0, f"$ {command}", ' class="typed"')]
    rules = []
    for number, (at, text) in enumerate(lines, 1):
        share = 100 * at / length
        rules.append(
            f"@keyframes l{number} {{ 0%, {share:.2f}% {{ opacity: 0 }} {share + 0.01:.2f}% {{ opacity: 1 }} }}"
        )
        rules.append(f".l{number} {{ animation: l{number} {length:.1f}s infinite }}")
        shown.append(_text(number, text, f' class="l{number}"'))
    style = "\n".join(rules)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"
 role="img" aria-label="A terminal that runs {html.escape(command)}">
<style>
text {{ font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #d8dee9; white-space: pre }}
.typed {{ fill: #a3d39c }}
@media (prefers-reduced-motion: no-preference) {{
{style}
}}
</style>
<rect width="100%" height="100%" rx="8" fill="#1f2430"/>
{chr(10).join(shown)}
</svg>
"""


def _text(line: int, text: str, attributes: str) -> str:
    return (
        f'<text x="{_EDGE}" y="{_EDGE + _LINE * line + 14}"{attributes} xml:space="preserve">{html.escape(text)}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(drawn(COMMAND, list(recorded(COMMAND.split()[1:]))), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))  # noqa: T201
