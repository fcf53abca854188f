"""The stage of every scene."""

import pytest

from tests.pairs.play import Play
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway


@pytest.fixture
def play(gateway: Gateway, simulated: SimulatedProvider, alice: Tenant) -> Play:
    return Play(gateway, simulated, alice)
