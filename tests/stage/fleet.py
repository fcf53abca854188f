"""Four gateway processes, a set for the tests of a file that need several, with Redis dead: it may change no decision.

Not one for a whole run: they would poll and beat for nobody most of the time.
"""

from collections.abc import Iterator

import pytest

from tests.simulated.process import SimulatedProvider
from tests.stage.product import Gateway, free_port, running


@pytest.fixture(scope="module")
def fleet(
    database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Gateway]]:
    """Four gateways over one spool folder; they may dial the simulated provider alone."""
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    folder = tmp_path_factory.mktemp("fleet")
    with running(folder, 4, EGRESS_ALLOW=simulated.url, REDIS_URL=nowhere) as gateways:
        yield gateways
