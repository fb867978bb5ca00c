"""Optional dependencies: the error for a missing one, with the command that installs it.

The command takes the extra from where this installation of reliq came from: an index, a folder, a file or a repository.
"""

from reliq.errors import MissingExtra

_PROJECT = "reliq-queue"


def missing_extra(what: str, extra: str, error: ImportError) -> MissingExtra:
    """Return the error that says which package `what` lacks and which extra brings it."""
    return MissingExtra(f"{what} needs the package {error.name or error}: {install_command(extra)}")


def is_installed(*packages: str) -> bool:
    """Whether all these packages can be found; does not import them."""
    from importlib.util import find_spec

    return all(find_spec(package) for package in packages)


def install_command(extra: str) -> str:
    """Return the pip command that adds the extra to this installation."""
    import shlex  # only an error needs it, as all imports below: importing reliq does not load them

    origin = _origin()
    if origin is None:  # imported from a source tree that is not installed
        return f"pip install '.[{extra}]' in reliq's source folder"
    return f"pip install {shlex.quote(origin.format(extra=f'[{extra}]'))}"


def _origin() -> str | None:
    """Return what pip installed, with {extra} where an extra goes; None without an installation."""
    import json
    from importlib import metadata
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    try:
        record = metadata.distribution(_PROJECT).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    if record is None:
        return _PROJECT + "{extra}"
    direct = json.loads(record)
    parts = urlsplit(direct["url"])
    if parts.scheme != "file":
        scheme = f"{direct['vcs_info']['vcs']}+" if "vcs_info" in direct else ""
        return f"{_PROJECT}{{extra}} @ {scheme}{direct['url']}"
    path = unquote(parts.path)
    return path.replace("{", "{{").replace("}", "}}") + "{extra}" if Path(path).exists() else None
