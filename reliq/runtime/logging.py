"""Log lines: one for each event, as text for people and `grep`, or as JSON. No passwords.

Only on a terminal does an event with a text of several lines, such as a traceback, take several: indented, so that none
can pose as another event.

The library never logs a body; a traceback of a handler's own error may contain whatever that handler put into it.
"""

import contextlib
import json
import logging
import math
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from reliq.runtime.environment import flag, is_on
from reliq.runtime.url import redacted

log = logging.getLogger("reliq.worker")

_AS_JSON = "RELIQ_LOG_JSON"
_TRACEBACKS = "RELIQ_LOG_TRACEBACKS"
_PLACEHOLDER = re.compile(r"(?:(\w+)=)?%(?:%|[-#0 +]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa])")
#: Control characters, and invisible ones that turn the text beside them around, hide in it, or cannot be encoded.
_HIDDEN = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f"
)
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_IN_LINES = re.compile(f"[{_HIDDEN}]")
_IN_ONE_LINE = re.compile(f"[{_HIDDEN}\\t\\n\\r]")


def configure(level: int, as_json: bool, tracebacks: bool) -> None:
    """Send this process's log to standard error.

    The environment carries the choices to child processes: JSON is also written when RELIQ_LOG_JSON is on, and
    tracebacks of failures when RELIQ_LOG_TRACEBACKS is. Raises InvalidSetting where one is neither on nor off.
    """
    if as_json:
        os.environ[_AS_JSON] = "1"
    if tracebacks:
        os.environ[_TRACEBACKS] = "1"
    as_json, _ = flag(_AS_JSON), flag(_TRACEBACKS)
    text = Paragraphs() if sys.stderr.isatty() else Lines()
    logging.basicConfig(level=level, handlers=[_Own(JsonLines() if as_json else text)])


class _Own(logging.StreamHandler[Any]):
    """The handler of reliq, with its formatter."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(formatter)


@contextlib.contextmanager
def left_to_application() -> Iterator[None]:
    """Let what is imported meanwhile configure logging as in a program of its own; `configure` was called before.

    reliq's handler writes meanwhile what no other handler does. Afterwards it is that of the root logger again, unless
    one that the application has added there writes to standard output or error, too.
    """
    root = logging.getLogger()
    own = next((one for one in root.handlers if isinstance(one, _Own)), None)
    if own is None:
        yield
        return
    root.removeHandler(own)
    before, logging.lastResort = logging.lastResort, own
    try:
        yield
    finally:
        logging.lastResort = before
        enable()
        if not any(_prints(one) for one in root.handlers):
            root.addHandler(own)
        elif isinstance(own.formatter, JsonLines):
            log.warning("log_json_unused: the application has a handler of its own at the root logger, which writes")


def enable() -> None:
    """Enable reliq's loggers: `logging.config.dictConfig` disables those it is not told of, unless told otherwise."""
    for name, one in list(logging.root.manager.loggerDict.items()):
        if isinstance(one, logging.Logger) and (name == "reliq" or name.startswith("reliq.")):
            one.disabled = False


def _prints(handler: logging.Handler) -> bool:
    """Whether a handler writes to standard output or error, itself or, as that of rich, by its console."""
    stream = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
    try:
        return stream is not None and stream.fileno() in (1, 2)
    except (AttributeError, OSError, ValueError):  # one in memory, or a closed one
        return False


def tracebacks_wanted() -> bool:
    """Whether the log line of a failure that is tried again includes the traceback."""
    return is_on(_TRACEBACKS)


def printable(text: str, lines: bool = False) -> str:
    """Return the text with escapes for what a reader does not see; `lines`: tabs and line breaks stay."""
    hidden = _IN_LINES if lines else _IN_ONE_LINE
    return hidden.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_json(value: object, indent: int | None = None) -> str:
    """Return JSON with letters of every script as they are; what a reader does not see is an escape of JSON."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _IN_LINES.sub(lambda found: json.dumps(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """Return the text without passwords, with line breaks and other control characters escaped."""
    return printable(redacted(text))


def paragraph(text: str) -> str:
    """Return the text without passwords, its further lines indented, with other control characters escaped."""
    lines = redacted(text).splitlines()
    return "\n    ".join(printable(line) for line in lines)


class Lines(logging.Formatter):
    """Formats a record as time, level, logger and message; a traceback follows in the same line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        return one_line(super().format(record))


class Paragraphs(Lines):
    """Formats a record for a terminal: the same, with the line breaks of its texts; further lines are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line or several."""
        return paragraph(logging.Formatter.format(self, record))


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object: time, level, logger, message, and each name=value of the message as a field.

    The fields are read from the message's template, never from its values: no value can pose as a field. What the
    application gave as `extra=` is a field too, unless one of the others has its name.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        entry: dict[str, Any] = {
            **extras(record),
            **fields(record),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(entry, default=str)


def fields(record: logging.LogRecord) -> dict[str, str | int | float | bool | None]:
    """Return the values that the record's template names, as in `log.info("dead queue=%s id=%s", ...)`."""
    if not isinstance(record.msg, str) or not isinstance(record.args, tuple):
        return {}
    names = [found[1] for found in _PLACEHOLDER.finditer(record.msg) if not found[0].endswith("%%")]
    if len(names) != len(record.args):
        return {}
    return {name: _plain(value) for name, value in zip(names, record.args, strict=True) if name}


def extras(record: logging.LogRecord) -> dict[str, Any]:
    """Return what the application gave as `extra=`, as JSON has it. Names that begin with _ are those of libraries."""
    own = vars(record).keys() - _STANDARD
    return {name: _as_json_value(getattr(record, name)) for name in sorted(own) if not name.startswith("_")}


def _as_json_value(value: object) -> Any:
    """Return the value, or its text where JSON cannot hold it, without passwords."""
    try:
        if isinstance(value, (dict, list, tuple)):
            return _without_passwords(json.loads(json.dumps(value, default=str, allow_nan=False)))
        return _plain(str(value) if isinstance(value, float) and not math.isfinite(value) else value)
    except Exception:  # noqa: BLE001  such as of a list that holds itself, or of the value's own __str__
        return _text_of(value)


def _without_passwords(value: Any) -> Any:
    if isinstance(value, dict):
        return {redacted(name): _without_passwords(one) for name, one in value.items()}
    return [_without_passwords(one) for one in value] if isinstance(value, list) else _plain(value)


def _text_of(value: object) -> str:
    try:
        return redacted(str(value))
    except Exception:  # noqa: BLE001  the line must not be lost
        return f"<{type(value).__qualname__}, whose str() failed>"


def _plain(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, (int, float)) or value is None else redacted(str(value))
