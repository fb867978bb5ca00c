from collections.abc import Iterator

import pytest

from tests.support.state import World


@pytest.fixture
def world(url: str) -> Iterator[World]:
    world = World(url)
    yield world
    world.close()


@pytest.fixture
def held(world: World) -> World:
    """A consumer has claimed two messages."""
    world.given(processing={"w": "b a"}, leases={"w": 30_000})
    return world
