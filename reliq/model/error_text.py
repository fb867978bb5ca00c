"""The text of a failure in one line, for lists and logs: what its error says first, without its traceback."""

import re

from reliq.model.element import Failure

_FRAMES = re.compile(r"^[ +|]*(?:Exception Group )?Traceback \(most recent call last\):$", re.MULTILINE)
_BETWEEN_ERRORS = re.compile(
    r"^(?:The above exception was the direct cause of the following exception"
    r"|During handling of the above exception, another exception occurred):$",
    re.MULTILINE,
)


def gist(failure: Failure) -> str:
    """Return the first line of what an error says, without its class; the last line of an unusual traceback."""
    text = failure.text.strip()
    latest = _BETWEEN_ERRORS.split(text)[-1].strip()
    if not _FRAMES.search(latest):
        return latest.removeprefix(f"{failure.error_class}:").lstrip().partition("\n")[0]
    for part in (latest, text):  # what the error says may quote another traceback
        line = _after_frames(failure.error_class, part)
        if line is not None:
            return line
    return latest.rpartition("\n")[2]


def classed_gist(failure: Failure) -> str:
    """Return the gist with the class of the error before it, unless its text stands in place of a traceback."""
    line = gist(failure)
    if line and failure.text.lstrip().startswith(line):
        return line
    return f"{failure.error_class}: {line}" if line else failure.error_class


def _after_frames(error_class: str, text: str) -> str | None:
    """Return the first line that follows the class of the error in a traceback; None if the class is not there."""
    frames = _FRAMES.search(text)
    name = re.escape(error_class.removeprefix("__main__."))  # tracebacks name the classes of a script without it
    own = re.compile(rf"^[ |]*(?:__main__\.)?{name}(?::|$)", re.MULTILINE)
    found = own.search(text, frames.end()) if frames else None
    return None if found is None else text[found.end() :].lstrip(" |\n").partition("\n")[0]
