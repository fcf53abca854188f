"""Prices that change while many ask: X5. Each charge is by the price version of its hold, to the smallest unit."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from billing.ids import first_id
from billing.models import TariffVersion, Usage
from tests.contention.changes import Change, ask_while_changing, change_by
from tests.contention.conftest import Figures
from tests.contention.scale import scaled
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, database, owner_url, run
from tests.stage.cast import Tenant
from tests.stage.clock import clock
from tests.stage.load import Answer, Clients
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import add_version, make_model, make_provider, make_tariff

pytestmark = pytest.mark.backbone

CHANGES = scaled(10, 100)
REQUESTS = scaled(300, 10_000)
HEARD_WITHIN = scaled(5.0, 1.0)  # seconds

WATCH = """
create table seen_hold (id uuid, version bigint);
grant insert on seen_hold to meterline_app;
create function see_hold() returns trigger language plpgsql as $$
begin
    insert into seen_hold values (new.id, (new.facts->>'tariff_version')::bigint);
    return null;
end $$;
create trigger see_hold after insert on billing_hold for each row execute function see_hold();
"""


@pytest.fixture
def held() -> Iterator[Any]:
    """What each hold was made for, recorded by the database: a function that gives price versions by generation."""

    def versions() -> dict[UUID, int]:
        return dict(connection.execute("select id, version from seen_hold").fetchall())

    with database(owner_url()) as connection:
        connection.execute(WATCH)
        try:
            yield versions
        finally:
            connection.execute("drop trigger see_hold on billing_hold; drop function see_hold; drop table seen_hold")


def test_each_charge_is_by_the_price_version_of_its_hold(
    fleet: list[Gateway], simulated: SimulatedProvider, alice: Tenant, held: Any, figures: Figures
) -> None:
    """Version n asks n dollars a million tokens of the tenant, and costs half of it."""

    def prices(number: int) -> dict[str, Any]:
        return dict.fromkeys(("input", "output"), (f"{number / 2}", f"{number}"))

    tariff = make_tariff(**prices(1))
    (first,) = tariff.versions.all()
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=7&prompt=5", tariff).slug
    synchronize(*fleet)
    made: list[TariffVersion] = [first]

    async def ask(clients: Clients, url: str, number: int) -> Answer:
        return await clients.insist(url, alice.secret, model=model, stream=number % 2 == 0)

    def reprice(number: int) -> Change:
        return change_by(lambda: made.append(add_version(tariff, clock(), **prices(number + 2))))

    journal, changes = run(ask_while_changing(fleet, REQUESTS, CHANGES, ask, reprice))
    assert all(answer.final for answer in journal if answer.status != 503)
    rows = list(Usage.objects.filter(organization=alice.organization.pk, error=""))
    assert len(rows) == sum(answer.final for answer in journal) >= REQUESTS
    numbers = {version.pk: number for number, version in enumerate(made, 1)}
    versions = held()
    assert [row.pk for row in rows if versions[row.pk] != row.tariff_version] == []
    wrong, late = 0, 0.0
    for row in rows:
        assert row.tariff_version is not None and row.charge is not None
        number = numbers[row.tariff_version]
        wrong += row.charge != Decimal(12 * number) / 10**6
        wrong += row.provider_cost != Decimal(12 * number) / (2 * 10**6)
        assert row.created_at >= made[number - 1].effective_from
        if number <= CHANGES:
            late = max(late, (row.created_at - changes[number - 1].at).total_seconds())
    assert wrong == 0
    assert len({row.tariff_version for row in rows}) > CHANGES / 2
    assert late < HEARD_WITHIN
    problems = books(alice.organization).problems()  # by who shares no code with the product
    assert problems == []
    figures(
        "X5", requests_less=REQUESTS - len(rows), mismatches=len(problems) + wrong,
        seconds_that_an_old_one_was_used=round(late, 3),
    )  # fmt: skip


def test_a_price_that_is_to_come_is_there_at_its_second(
    fleet: list[Gateway], simulated: SimulatedProvider, alice: Tenant, figures: Figures
) -> None:
    """Whoever asks from its moment on pays it, whoever was held for before it does not: at all four processes."""
    tariff = make_tariff(input="0", output="1000")
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=1", tariff).slug
    begins: list[datetime] = []
    heard: list[datetime] = []  # when all four had heard of it, mostly long before

    async def ask(clients: Clients, url: str, number: int) -> Answer:
        return await clients.insist(url, alice.secret, model=model)

    def announce(number: int) -> Change:
        begins.append(clock().replace(microsecond=0) + timedelta(seconds=2))
        made = change_by(lambda: add_version(tariff, begins[-1], input="0", output=str(1000 + number + 1)))
        synchronize(*fleet)
        heard.append(clock())
        until(lambda: clock() > begins[-1] + timedelta(milliseconds=100))
        return made

    seconds = scaled(1, 5)
    synchronize(*fleet)
    journal, _ = run(ask_while_changing(fleet, 20 * seconds, seconds, ask, announce, clients=scaled(4, 16)))
    rows = list(Usage.objects.filter(organization=alice.organization.pk, error=""))
    assert len(rows) == sum(answer.final for answer in journal)
    wrong, seen = 0, set()
    for row in rows:
        if any(begin <= row.created_at <= told for begin, told in zip(begins, heard, strict=True)):
            continue  # on a machine that was too busy to tell in time
        paid = int((row.charge or 0) * 10**6) - 1000  # how many of them had begun
        # An id is made when a request arrives, before its price is looked up; it is held after that.
        arrived = sum(row.pk >= first_id(moment) for moment in begins)
        held = sum(row.created_at >= moment for moment in begins)
        wrong += not arrived <= paid <= held
        seen.add(paid)
    assert wrong == 0
    assert seen == set(range(seconds + 1))
    assert books(alice.organization).problems() == []
    figures("X5", on_the_wrong_side_of_a_second=wrong)
