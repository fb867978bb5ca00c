"""The files of the pages, all from this package, under an address that changes with their content."""

import hashlib
from dataclasses import dataclass
from importlib import resources

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    media_type: str


def _load() -> dict[str, Asset]:
    folder = resources.files("reliq_api.ui") / "static"
    return {
        file.name: Asset(file.read_bytes(), media_type)
        for file in folder.iterdir()
        for ending, media_type in _TYPES.items()
        if file.name.endswith(ending)
    }


ASSETS = _load()
VERSION = hashlib.sha256(b"".join(ASSETS[name].content for name in sorted(ASSETS))).hexdigest()[:12]
