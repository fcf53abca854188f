"""A credit that many give at once is given once: X8."""

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from billing.credit.prepaid import balance
from billing.models import Credit, LedgerEntry
from tests.contention.conftest import Figures
from tests.contention.scale import scaled
from tests.stage.backbone import operating
from tests.stage.cast import Tenant

pytestmark = pytest.mark.backbone

CONSOLES = scaled(8, 40)
TRIES = 5  # of each


@pytest.mark.parametrize("kind", ["top_up", "bonus"])
def test_one_of_many_grants_of_a_reference_wins(alice: Tenant, figures: Figures, kind: str) -> None:
    together = threading.Barrier(CONSOLES)
    tried: list[str] = []

    def give(_: int) -> None:
        with operating() as console:
            together.wait(60)
            for _ in range(TRIES):
                try:
                    console.execute(
                        "select billing_grant_credit(%s, %s, 7, null, 'invoice 12', '', 'finance', true)",
                        [alice.organization.pk, kind],
                    )
                    tried.append("granted")
                except psycopg.errors.UniqueViolation:
                    tried.append("refused")

    with ThreadPoolExecutor(CONSOLES) as threads:
        list(threads.map(give, range(CONSOLES)))
    won = tried.count("granted")
    assert (won, tried.count("refused")) == (1, CONSOLES * TRIES - 1)
    found = balance(alice.organization.pk)
    assert found is not None and found.left == 7
    assert Credit.objects.filter(organization=alice.organization).count() == 1
    assert LedgerEntry.objects.filter(organization=alice.organization.pk).count() == 1
    figures("X8", winners=won, refused=len(tried) - won)
