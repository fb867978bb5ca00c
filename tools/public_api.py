"""The public API as text: names, signatures and bases, one a line. `python tools/public_api.py` writes it anew.

tests/packaging/public_api.txt has the API of the latest commit. A line that is removed or altered breaks programs of
users: it needs an entry under "Changed" in CHANGELOG.md, and a new major version once there is a 1.0.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "packaging" / "public_api.txt"
#: Modules that users import. What stands in `__all__` is public, else each name that they define without `_`.
MODULES = (
    "reliq", "reliq.aio", "reliq.errors", "reliq.testing", "reliq.otel", "reliq.spark", "reliq.contrib.celery",
    "reliq.contrib.django", "reliq.contrib.fastapi", "reliq.contrib.sql", "reliq.contrib.taskiq",
)  # fmt: skip


def lines() -> list[str]:
    """Return the public API, sorted."""
    package = griffe.load("reliq", search_paths=[str(ROOT)], resolve_aliases=True)
    found = [line for name in MODULES for line in _of_module(package, name)]
    return sorted(set(found))


def _of_module(package: Any, path: str) -> Iterator[str]:
    module = package if path == "reliq" else package[path.removeprefix("reliq.")]
    for name, member in module.members.items():
        public = name in module.exports if module.exports is not None else _is_own(member)
        if public and not member.is_module:
            yield from _of_object(f"{path}.{name}", member)


def _is_own(member: griffe.Object | griffe.Alias) -> bool:
    return not member.is_alias and not member.name.startswith("_")


def _of_object(path: str, one: Any) -> Iterator[str]:  # a class, function or attribute, or an alias of one
    if one.is_class:
        bases = ", ".join(str(base) for base in one.bases)
        yield f"class {path}({bases})"
        for name, member in sorted(one.all_members.items()):
            if not name.startswith("_") or name == "__init__":
                yield from _of_object(f"{path}.{name}", member)
    elif one.is_function:
        given = ", ".join(_parameter(parameter) for parameter in one.parameters)
        yield f"{'async ' if 'async' in one.labels else ''}def {path}({given}) -> {one.returns}"
    elif one.is_attribute:
        yield f"{path}: {one.annotation}"


_STARS = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}


def _parameter(one: griffe.Parameter) -> str:
    stars = _STARS.get(one.kind, "") if one.kind else ""
    only = "only " if one.kind is griffe.ParameterKind.keyword_only else ""
    annotation = "" if one.annotation is None else f": {one.annotation}"
    default = "" if one.default is None or stars else f" = {one.default}"
    return f"{only}{stars}{one.name}{annotation}{default}"


if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
