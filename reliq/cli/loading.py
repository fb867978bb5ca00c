"""Load the application that a command names as MODULE:APP."""

import importlib
import logging
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

from reliq.errors import MissingExtra, RedisUnavailable, RedisUnsuitable
from reliq.protocol.application import Application
from reliq.runtime import logging as logs
from reliq.runtime.outage_log import OutageLog


def load(target: str) -> Application | None:
    """Load the application named MODULE:ATTRIBUTE; None, with the reason printed, if that fails."""
    module_name, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or module_name.endswith(".py"):
        print(
            f"reliq: {target!r} is not MODULE:APP: write a module as in `import`, e.g. shop.tasks:app", file=sys.stderr
        )
        return None
    if "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with logs.left_to_application():
            module = _imported(module_name)
    except MissingExtra:  # its text says it all
        raise
    except Exception as error:  # noqa: BLE001  a user's module may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            print(f"reliq: there is no module {error.name!r}, neither in {Path.cwd()} nor installed", file=sys.stderr)
            return None
        traceback.print_exception(error.with_traceback(_without_importing(error.__traceback__)))
        print(f"reliq: cannot import {module_name!r}, see above", file=sys.stderr)
        return None
    app = getattr(module, attribute or "app", None)
    if not isinstance(app, Application):
        kind = "has no attribute" if app is None else f"has a {type(app).__name__}, not a reliq.Reliq, as"
        print(f"reliq: module {module_name!r} {kind} {attribute or 'app'!r}: give MODULE:APP", file=sys.stderr)
        return None
    if app.handlers.empty:
        print(f"reliq: {target} has no handlers: decorate a function with @app.handler(queue)", file=sys.stderr)
        return None
    return app


def _without_importing(frames: TracebackType | None) -> TracebackType | None:
    """Remove the frames of this module and of Python's import before those of the application."""
    while frames is not None and (
        frames.tb_frame.f_code.co_filename == __file__ or "importlib" in frames.tb_frame.f_code.co_filename
    ):
        frames = frames.tb_next
    return frames


def _imported(name: str) -> ModuleType:
    """Import the module. If its import uses Redis, for example to subscribe, wait until Redis is reachable."""
    outage = OutageLog(logging.getLogger("reliq.worker"), f"importing {name}")
    while True:
        try:
            return importlib.import_module(name)
        except RedisUnsuitable:
            raise
        except RedisUnavailable as error:
            logs.enable()  # the application may have disabled them before it has asked Redis
            outage.failed(error)
            time.sleep(1.0)
