"""The Lua scripts: those of the core, and those in the slices."""

from pathlib import Path

import reliq

LUA = Path(reliq.__file__).parent / "lua"
FEATURES = LUA.with_name("features")


def scripts() -> dict[str, Path]:
    """Return all scripts by the name by which ops.request knows them: `settle`, `schedules/fire`."""
    found = {path.stem: path for path in sorted(LUA.glob("*.lua"))}
    return found | {f"{path.parts[-3]}/{path.stem}": path for path in sorted(FEATURES.glob("*/lua/*.lua"))}
