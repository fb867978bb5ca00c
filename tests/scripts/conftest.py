from collections.abc import Iterator

import pytest

from tests.support.state import World


@pytest.fixture
def world(url: str) -> Iterator[World]:
    world = World(url)
    yield world
    world.close()
