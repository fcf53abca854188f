"""Every fault a provider can have: what the client is told, who is asked next, what is billed, and what is left."""

import os
from collections.abc import Iterator

import pytest

from tests.faults.promises import Cell
from tests.faults.rows import CELLS, ROWS
from tests.faults.stage import Stage
from tests.faults.upstreams import upstreams
from tests.simulated.process import start as start_simulated
from tests.stage.product import running

# In `make test` every fault once, by turns: streamed and whole, alone and with another.
WHOLE = os.environ.get("FAULTS") == "whole"
OF_ROW = [[cell for cell in CELLS if cell.row is row] for row in ROWS]
CELLS_HERE = CELLS if WHOLE else [cells[turn % len(cells)] for turn, cells in enumerate(OF_ROW)]


@pytest.fixture(scope="module")
def stage(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A gateway and providers of its own, so that what each has open can be counted."""
    folder = tmp_path_factory.mktemp("faults")
    with start_simulated() as provider, upstreams(folder / "tls") as odd_ones:
        allowed = ",".join([provider.url, *odd_ones.origins])
        with running(folder, EGRESS_ALLOW=allowed, SSL_CERT_FILE=str(odd_ones.trust)) as (gateway,):
            yield Stage(gateway, provider, odd_ones)
            provider.until(10, sockets=0)  # those that were kept for a next request are closed in time


@pytest.mark.parametrize("cell", CELLS_HERE, ids=lambda cell: cell.id)
def test_a_fault_is_told_billed_and_left_as_promised(stage: Stage, cell: Cell) -> None:
    stage.play(cell)


def test_every_row_has_a_name_and_a_promise_of_one_line() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(0 < len(row.promise) <= 120 and "\n" not in row.promise for row in ROWS)
