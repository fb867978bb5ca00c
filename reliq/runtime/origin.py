"""Where in the user's code an error was raised, and which one it was."""

import os
import sysconfig
import traceback
from pathlib import Path

from reliq.contract import values
from reliq.contract.values import cut

_HERE = str(Path(__file__).parents[1]) + os.sep
_PYTHON = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def origin(error: BaseException) -> str:
    """Return file, line and function of the last frame in the user's code; empty where only reliq's own is known.

    Code of reliq, of Python's own library and of installed packages is not the user's; without any of his, as where his
    application is installed too, it is the last frame that is not reliq's.
    """
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    others = [(code, line) for code, line in frames if not code.co_filename.startswith(_HERE)]
    own = [(code, line) for code, line in others if not _is_foreign(code.co_filename)]
    if not others:
        return ""
    code, line = (own or others)[-1]
    return f"{_short(code.co_filename)}:{line} in {code.co_name}"


def traceback_of(error: BaseException) -> str:
    """Return the traceback; where it is too long, up to half of the room is for what the error says."""
    whole, said = "".join(traceback.format_exception(error)), "".join(traceback.format_exception_only(error))
    if cut(whole) == whole or not whole.endswith(said):
        return whole
    said_cut = cut(said, values.MAX_ERROR_CHARACTERS // 2)
    return cut(whole.removesuffix(said), values.MAX_ERROR_CHARACTERS - len(said_cut.encode())) + said_cut


def itself(error: BaseException) -> BaseException:
    """Return the StopIteration that Python has wrapped where it left a generator of reliq; other errors as they are."""
    cause = error.__cause__
    wraps = type(error) is RuntimeError and error.args == ("generator raised StopIteration",)
    return cause if wraps and isinstance(cause, StopIteration) else error


def _is_foreign(file: str) -> bool:
    return file.startswith(("<", *_PYTHON)) or any(one in file for one in _INSTALLED)


def _short(file: str) -> str:
    """Return the path as it is typed in the current folder."""
    try:
        return file.removeprefix(os.getcwd() + os.sep)  # noqa: PTH109  for each failure: a Path takes ten times as long
    except OSError:  # the folder is gone
        return file
