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
    import shlex  # only errors and `reliq new` need it, as all imports below: importing reliq does not load them

    url = _origin()
    if url is None:
        return f"pip install '.[{extra}]' in reliq's source folder"
    if url.startswith("file:"):
        return f"pip install {shlex.quote(f'{_path(url)}[{extra}]')}"
    return f"pip install '{_PROJECT}[{extra}]{url and f' @ {url}'}'"


def requirement(extra: str) -> str:
    """Return the line for requirements.txt that installs reliq, with this extra, from where this one came from."""
    url = _origin()
    if url is None:
        return f"# {_PROJECT}[{extra}]: this reliq is not installed; name a folder, a wheel or an index"
    return f"{_PROJECT}[{extra}]{url and f' @ {url}'}"


def local_origin() -> str | None:
    """Return the folder or file of this machine that reliq was installed from, None if it came from elsewhere."""
    url = _origin()
    return _path(url) if url is not None and url.startswith("file:") else None


def _origin() -> str | None:
    """Return the URL of what was installed, "" for an index, None if it is not installed or its folder is gone."""
    import json
    from importlib import metadata
    from pathlib import Path

    try:
        record = metadata.distribution(_PROJECT).read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # imported from a source tree
        return None
    if record is None:
        return ""
    direct = json.loads(record)
    url = str(direct["url"])
    if url.startswith("file:"):
        return url if Path(_path(url)).exists() else None
    return f"{direct['vcs_info']['vcs']}+{url}" if "vcs_info" in direct else url


def _path(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path)
