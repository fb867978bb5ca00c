"""`reliq new NAME`: a starting project with an application, its tests and a compose file."""

import argparse
import importlib.util
import keyword
import shlex
import sys
from pathlib import Path
from typing import Any

from reliq.errors import InvalidSetting

_TEMPLATES = Path(__file__).with_name("project")
_EXTRAS = "api,embedded,reload,testing"
_IMAGE = """ The image cannot
read reliq from this machine. Bring a wheel of it, and name the wheel in `requirements.txt`:

```sh
pip wheel --no-deps --wheel-dir . {path}
printf "%s\\n" "$(ls ./reliq_queue-*.whl)[{extras}]" pytest > requirements.txt
```"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    what = "write a starting project: an application, its tests, a compose file"
    one = commands.add_parser("new", help=what, description=what[0].upper() + what[1:] + ".")
    one.set_defaults(run=new)
    one.add_argument("name", help="name of the folder and its module, e.g. shop")


def new(options: argparse.Namespace) -> int:
    """Write the project into a new folder, and say how to go on."""
    name = _checked(options.name)
    folder = Path(name)
    try:
        folder.mkdir()
    except OSError as error:
        raise InvalidSetting(f"the folder {name} cannot be created: {error.strerror}") from None
    for template in sorted(_TEMPLATES.iterdir()):
        (folder / _file_name(template.name, name)).write_text(_filled_in(template, name), encoding="utf-8")
    print(f"{name}/ has an application, its tests and a compose file; its README says how to go on:\n")
    print(f"cd {name}\npip install -r requirements.txt\nreliq dev {name}:app")
    return 0


def _checked(name: str) -> str:
    """Return the name of a new module; raises InvalidSetting."""
    if keyword.iskeyword(name):
        raise InvalidSetting(f"{name!r} is a word of Python: choose another name")
    if not (name.isidentifier() and name.isascii() and name == name.lower()):
        raise InvalidSetting(f"{name!r} is no name for a module: use a-z, 0-9 and _, and begin with a letter")
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise InvalidSetting(f"there is a module {name!r} already, which the new one would hide: choose another name")
    return name


def _file_name(template: str, name: str) -> str:
    text = template.replace("NAME", name).replace("gitignore.txt", ".gitignore")
    return text if text == "requirements.txt" else text.removesuffix(".txt")


def _filled_in(template: Path, name: str) -> str:
    from reliq.extras import local_origin, requirement

    text = template.read_text(encoding="utf-8")
    path = local_origin()
    image = "" if path is None else _IMAGE.format(path=shlex.quote(path), extras=_EXTRAS)
    return text.replace("NAME", name).replace("IMAGE", image).replace("REQUIREMENT", requirement(_EXTRAS))
