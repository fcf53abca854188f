"""What a hard budget had left, in the headers of an answer: of the one with the least, and of nobody else's."""

import httpx
import pytest

from billing.models import Budget
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider, make_tariff

HEADER = "x-gateway-budget-remaining"


@pytest.fixture
def model(simulated: SimulatedProvider) -> str:
    """A model at a cent a request, and nothing for a token."""
    tariff = make_tariff(input="0", output="0", request="0.01")
    return make_model(make_provider(simulated.base_url), tariff=tariff).slug


def ask(gateway: Gateway, tenant: Tenant, model: str, **body: object) -> httpx.Response:
    """A short chat that is answered."""
    answer = gateway.chat(tenant.secret, model, **body)
    assert answer.status_code == 200
    return answer


def test_it_says_what_the_least_hard_budget_had_left(
    gateway: Gateway, alice: Tenant, charlie: Tenant, model: str
) -> None:
    synchronize(gateway)
    assert HEADER not in ask(gateway, alice, model).headers  # none binds
    mine = {"organization": alice.organization}
    Budget.objects.create(**mine, period="total", amount="5")
    Budget.objects.create(**mine, project=alice.project, period="day", amount="1.500000000001")
    Budget.objects.create(**mine, key=alice.key, period="month", amount="0.001", hard=False)
    first = ask(gateway, alice, model)
    assert first.headers[HEADER] == "1.490000000001"  # a cent was spent before the budget was made, and counts
    assert ask(gateway, alice, model, stream=True).headers[HEADER] == "1.480000000001"
    assert ask(gateway, alice, model).headers[HEADER] == "1.470000000001"
    assert HEADER not in ask(gateway, charlie, model).headers
