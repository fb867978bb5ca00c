"""The parts of the service that are found by their place: a module with a router needs no entry in a list."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def modules_with_router(package: str, path: Sequence[str], first: Sequence[str] = ()) -> Iterator[ModuleType]:
    """Yield the modules of a package that have a router: those of `first`, then the others by name.

    A request is compared with the routes in their order, so the calls that come most often are first.
    """
    names = [one.name for one in iter_modules(path)]
    for name in (*first, *sorted(set(names) - set(first))):
        module = import_module(f"{package}.{name}")
        if hasattr(module, "router"):
            yield module
