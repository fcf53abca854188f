"""What a provider claimed and was not believed: seen beside what was charged, and judged once."""

from datetime import timedelta
from decimal import Decimal
from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from billing import repricing
from billing.auditing import _repriced
from billing.models import Judgement, LedgerEntry, Quarantined, Repricing, Tariff, Usage
from billing.quarantine import amounts, judge, tokens_of
from tests.billing.test_repricing import used
from tests.console.browser import console, console_role, url
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_version, make_model, make_provider, make_tariff

AT = timezone.now() - timedelta(days=40)
CLAIM: dict[str, Any] = {
    "said": {"prompt_tokens": 5000, "completion_tokens": 700, "cached_tokens": 9000},
    "tokens": {"prompt": 5000, "completion": 700, "cached": 9000},
}
CHARGE, COST = Decimal("0.003432"), Decimal("0.00312")  # by these, of which nothing is cached
WAS_CHARGED, DID_COST = Decimal("0.00132"), Decimal("0.0012")


@pytest.fixture
def tariff(database: None) -> Tariff:
    return make_tariff(input=("0.4", "0.44"), output=("1.6", "1.76"))


def quarantined(tenant: Tenant, tariff: Tariff, claim: Any = CLAIM, **fields: Any) -> Quarantined:
    """A generation that was charged by an estimate of 1000 + 500 tokens."""
    plan = {"model": "m"} if claim is None else {"model": "m", "claimed": claim}
    row = used(tenant, tariff, AT, **{"basis": "estimated", "suspect": True, "plan": plan, **fields})
    return Quarantined.objects.get(pk=row.pk)


def posted(tenant: Tenant) -> list[tuple[Any, ...]]:
    """The adjustments of a tenant."""
    rows = LedgerEntry.objects.filter(kind="reprice", organization=tenant.organization.pk).order_by("pk")
    return list(rows.values_list("debit", "credit", "amount"))


def disagrees(tenant: Tenant) -> list[Any]:
    """What the auditor says of the adjustments of a tenant."""
    with connection.cursor() as cursor:
        return [found for found in _repriced(cursor) if str(tenant.organization.pk) in found.place]


def test_an_accepted_claim_is_posted_once_and_the_books_agree(alice: Tenant, tariff: Tariff) -> None:
    row = quarantined(alice, tariff)
    assert amounts(row) == (CHARGE, COST)
    with console_role():
        assert judge(row, "ann", accept=True)
        assert not judge(row, "bob", accept=True) and not judge(row, "bob", accept=False)
    id = alice.organization.pk
    assert posted(alice) == [
        (f"repriced:{id}", "repriced-revenue", CHARGE - WAS_CHARGED),
        ("repriced-cost", "repriced-provider", COST - DID_COST),
    ]
    said = Judgement.objects.get(pk=row.pk)
    assert (said.decision, said.decided_by, said.claimed) == ("accepted", "ann", CLAIM)
    assert (said.charge_change, said.cost_change) == (Decimal("0.002112"), Decimal("0.00192"))
    assert said.run is not None and (said.run.generation, said.run.applied_by) == (row.pk, "ann")
    assert disagrees(alice) == []
    usage = Usage.objects.get(pk=row.pk)
    assert (usage.charge, usage.prompt_tokens, usage.basis) == (WAS_CHARGED, 1000, "estimated")


def test_what_was_accepted_stays_when_its_tariff_is_priced_anew(alice: Tenant, tariff: Tariff) -> None:
    judge(quarantined(alice, tariff), "ann", accept=True)
    twice = add_version(tariff, timezone.now() - timedelta(hours=1), input=("0.4", "0.88"), output=("1.6", "3.52"))
    run = Repricing.objects.create(
        version=twice, first=AT.date(), until=AT.date() + timedelta(days=1), asked_by="finance"
    )
    while repricing.count(run.pk):
        pass
    assert repricing.apply(run.pk, "finance") == "applied"
    assert posted(alice)[2:] == [(f"repriced:{alice.organization.pk}", "repriced-revenue", WAS_CHARGED)]
    assert disagrees(alice) == []


def test_a_dismissed_one_changes_nothing(alice: Tenant, tariff: Tariff) -> None:
    row = quarantined(alice, tariff)
    assert judge(row, "ann", accept=False)
    assert not judge(row, "bob", accept=True)
    said = Judgement.objects.get(pk=row.pk)
    assert (said.decision, said.charge_change, said.cost_change) == ("dismissed", Decimal(0), Decimal(0))
    assert said.run is None
    assert posted(alice) == []


def test_of_two_at_once_one_decides(alice: Tenant, tariff: Tariff) -> None:
    row = quarantined(alice, tariff)
    gate, done = Barrier(4), list[bool]()

    def decide(name: str) -> None:
        try:
            gate.wait(20)
            done.append(judge(row, name, accept=True))
        finally:
            connection.close()

    threads = [Thread(target=decide, args=(f"op{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, False, False, True]
    assert len(posted(alice)) == 2 and disagrees(alice) == []


@pytest.mark.parametrize(
    ("claim", "fields"),
    [
        (None, {}),
        ({"said": {"prompt_tokens": -5}}, {}),
        ({"said": "x", "tokens": {"prompt": -1, "completion": 5}}, {}),
        ({"said": "x", "tokens": {"prompt": 10**10, "completion": 5}}, {}),
        ({"said": "x", "tokens": {"prompt": 5, "completion": True}}, {}),
        (CLAIM, {"tariff_version": None}),
        (CLAIM, {"basis": "unknown"}),
        (CLAIM, {"arithmetic": [{"item": "input", "quantity": 1, "attempt": 1}]}),
    ],
)
def test_what_cannot_be_charged_is_only_dismissed(alice: Tenant, tariff: Tariff, claim: Any, fields: Any) -> None:
    row = quarantined(alice, tariff, claim, **fields)
    assert amounts(row) is None
    with pytest.raises(ValueError, match="nothing in it"):
        judge(row, "ann", accept=True)
    assert not Judgement.objects.filter(pk=row.pk).exists() and posted(alice) == []
    assert judge(row, "ann", accept=False)


def test_what_was_capped_stays_capped(alice: Tenant, tariff: Tariff) -> None:
    row = quarantined(alice, tariff, basis="capped", charge=Decimal("0.001"))
    assert amounts(row) == (Decimal("0.001"), COST)
    assert judge(row, "ann", accept=True)
    assert posted(alice) == [("repriced-cost", "repriced-provider", COST - DID_COST)]
    assert disagrees(alice) == []


def test_what_fits_inside_counts(alice: Tenant, tariff: Tariff) -> None:
    claim = {"said": {}, "tokens": {"prompt": 10, "completion": 5, "cached": 4, "reasoning": 9}}
    tokens = tokens_of(quarantined(alice, tariff, claim))
    assert tokens is not None
    assert (tokens.prompt, tokens.completion, tokens.cached, tokens.reasoning) == (10, 5, 4, 0)


def test_an_operator_sees_it_and_decides_in_the_console(alice: Tenant, charlie: Tenant, tariff: Tariff) -> None:
    row, other = quarantined(alice, tariff), quarantined(charlie, tariff, {"said": {"prompt_tokens": -5}})
    plain = used(alice, tariff, AT, basis="estimated")
    client = console()
    listed = f"{url(Quarantined, 'changelist')}?organization={alice.organization.pk}"
    html = client.get(listed).content.decode()
    assert row.pk.hex in html or str(row.pk) in html
    assert "5,000" in html and "1,000" in html and "Not decided" in html
    assert str(other.pk) not in html and str(plain.pk) not in html
    assert client.get(url(Quarantined, "change", plain.pk)).status_code == 302  # it is none
    change = url(Quarantined, "change", row.pk)
    html = client.get(change).content.decode()
    assert "cached_tokens: 9000" in html and 'id="accept_form"' in html and "$0.003432" in html
    refused = client.get(url(Quarantined, "change", other.pk)).content.decode()
    assert 'id="accept_form"' not in refused and "prompt_tokens: -5" in refused
    accept = change.replace("change/", "accept/")
    assert client.get(accept).status_code == 405
    assert console(superuser=False).post(accept).status_code == 404
    assert posted(alice) == []
    assert "Accepted: the difference is posted." in client.post(accept, follow=True).content.decode()
    again = client.post(accept.replace("accept/", "dismiss/"), follow=True).content.decode()
    assert "Somebody has decided on it meanwhile" in again and 'id="dismiss_form"' not in again
    assert len(posted(alice)) == 2
    assert "Accepted the claim." in client.get(url(Quarantined, "history", row.pk)).content.decode()
    assert str(row.pk) not in client.get(f"{listed}&decision=open").content.decode()
    assert str(row.pk) in client.get(f"{listed}&decision=accepted").content.decode()
    cannot = client.post(url(Quarantined, "change", other.pk).replace("change/", "accept/"), follow=True)
    assert "It cannot be accepted" in cannot.content.decode()


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_provider_lied_is_kept_with_the_generation(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool
) -> None:
    provider = make_provider(simulated.base_url)
    models = {
        lie: make_model(provider, f"sim-lies?text=hello&wrong_usage={lie}") for lie in ("negative", "huge", "total")
    }
    synchronize(gateway)
    kept = {}
    for lie, model in models.items():
        answer = gateway.chat(alice.secret, model.slug, stream=stream)
        row = Quarantined.objects.get(pk=answer.headers["x-generation-id"])
        assert row.suspect and "claimed" not in answer.text
        kept[lie] = row.claimed
        headers = {"authorization": f"Bearer {alice.secret}"}
        told = gateway.client.get("/v1/generation", params={"id": str(row.pk)}, headers=headers)
        assert told.status_code == 200 and "claimed" not in told.text
    assert any(value < 0 for value in kept["negative"]["said"].values() if type(value) is int)
    assert any("..." in str(value) or "1000000" in str(value) for value in kept["huge"]["said"].values())
    assert "tokens" not in kept["negative"] and "tokens" not in kept["huge"]
    assert kept["total"]["said"]["total_tokens"] > kept["total"]["said"]["prompt_tokens"]


@pytest.mark.parametrize("column", ["web_searches", "images", "seconds"])
def test_what_is_no_token_is_not_lost_by_a_claim_of_tokens(alice: Tenant, tariff: Tariff, column: str) -> None:
    row = quarantined(alice, tariff, **{column: 3})
    assert amounts(row) is None
    with pytest.raises(ValueError, match="nothing in it"):
        judge(row, "ann", accept=True)
    assert posted(alice) == [] and not Judgement.objects.filter(pk=row.pk).exists()
