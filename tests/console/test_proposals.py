"""Prices that were found hard to believe, as a second person meets them in the console."""

from decimal import Decimal

from django.utils import timezone

from accounts.models import User
from billing.models import PriceProposal, TariffVersion
from tests.console.browser import console, submit, url
from tests.stage.shelf import make_tariff


def propose(by: str) -> PriceProposal:
    """A price a hundred times of what it was."""
    return PriceProposal.objects.create(
        tariff=make_tariff(input="1", output="1"),
        effective_from=timezone.now(),
        rates=[["input", 0, "100", "120"], ["output", 0, "1", None]],
        reason="input 1 -> 100",
        proposed_by=by,
    )


def test_a_second_person_approves_it_once() -> None:
    row, client = propose("root"), console()
    page = url(PriceProposal, "change", row.pk)
    shown = client.get(page).content.decode()
    assert "input 1 -&gt; 100" in shown and "input: cost 100, charge 120" in shown
    assert submit(client, page, "priceproposal_form", decision="").status_code == 200  # a word has to be said
    assert row.tariff.versions.count() == 1
    assert submit(client, page, "priceproposal_form", decision="approved").status_code == 302
    row.refresh_from_db()
    newest = TariffVersion.objects.filter(tariff=row.tariff).latest("effective_from")
    assert (row.decision, newest.effective_from) == ("approved", row.decided_at)
    assert list(newest.rates.order_by("id").values_list("item", "cost", "charge")) == [
        ("input", Decimal(100), Decimal(120)),
        ("output", Decimal(1), None),
    ]
    assert 'name="_save"' not in client.get(page).content.decode()
    assert client.post(page, {"decision": "declined"}).status_code == 403
    assert row.tariff.versions.count() == 2


def test_who_proposed_it_only_looks_at_it_and_nobody_makes_or_deletes_one() -> None:
    client = console()
    me = User.objects.get(pk=client.session["_auth_user_id"])
    row = propose(me.get_username())
    page = url(PriceProposal, "change", row.pk)
    assert 'name="_save"' not in client.get(page).content.decode()
    assert client.post(page, {"decision": "approved"}).status_code == 403
    assert client.get(url(PriceProposal, "add")).status_code == 403
    assert client.post(url(PriceProposal, "delete", row.pk), {"post": "yes"}).status_code == 403
    assert console(superuser=False).get(page).status_code == 403
    row.refresh_from_db()
    assert (row.decision, row.tariff.versions.count()) == ("", 1)
