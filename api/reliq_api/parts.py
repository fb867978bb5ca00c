"""The parts of the service that are found by their place: a module with a router needs no entry in a list."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from reliq import features


def modules_with_router(
    package: str, path: Sequence[str], first: Sequence[str], *, of_slices: str
) -> Iterator[ModuleType]:
    """Yield the modules of a package, and those called `of_slices` in the slices, that have a router.

    Those of `first` come first, then the others by name; a slice's module goes by the name of the slice. A request is
    compared with the routes in their order, so the calls that come most often are first.
    """
    found = {one.name: f"{package}.{one.name}" for one in iter_modules(path)}
    for slice_ in iter_modules(features.__path__):
        folder = f"{features.__name__}.{slice_.name}"
        if any(one.name == of_slices for one in iter_modules(import_module(folder).__path__)):
            found[slice_.name] = f"{folder}.{of_slices}"
    known = [name for name in first if name in found]
    for name in (*known, *sorted(found.keys() - {*known})):
        module = import_module(found[name])
        if hasattr(module, "router"):
            yield module
