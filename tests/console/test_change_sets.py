"""Sets of changes: drafted by the pages' own forms, looked at, approved by a second person, applied, taken back."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from secrets import token_hex
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.contrib.messages import get_messages
from django.db import connection, transaction
from django.urls import reverse
from django.utils import timezone

from accounts.models import AuditEvent, Membership, User
from accounts.roles import Office, Role
from billing.models import Budget, Limit, Tariff, TariffVersion
from gateway.checks import what_needs_a_second_person_is_known
from gateway.models import ChangeSet
from routing.models import Policy, Replay
from tests.console.browser import Console, console, context_of, exact, filled, make_usage, submit, url
from tests.matrix.people import client_of
from tests.stage.cast import Tenant
from tests.stage.product import until
from tests.stage.shelf import add_version, make_model, make_provider, make_tariff


@pytest.fixture
def ann() -> Console:
    """An operator by their office, who may do what the table of roles says."""
    user = User.objects.create_user(f"op-{token_hex(4)}", is_staff=True)
    user.groups.add(Group.objects.get(name=Office.OPERATOR))
    return client_of(user)


@pytest.fixture
def ben() -> Console:
    """A superuser, who may do everything."""
    return console()


def name_of(client: Console) -> str:
    """What they are called."""
    return User.objects.get(pk=client.session["_auth_user_id"]).username


def drafted(page: Any) -> ChangeSet:
    """The set that a form's second button led to."""
    assert page.status_code == 302, context_of(page)["errors"]
    return ChangeSet.objects.get(pk=page["Location"].split("/")[-3])


def draft(client: Console, path: str, form: str, **fields: Any) -> ChangeSet:
    """Sends a page's form by its second button."""
    return drafted(submit(client, path, form, _draft="1", **fields))


def do(client: Console, wish: str, row: ChangeSet, looked_at: str | None = None) -> str:
    """Presses a button of a set, of its page as it is or as it was; what is said then, nothing where it was done."""
    if looked_at is None:
        looked_at = context_of(client.get(url(ChangeSet, "change", row.pk)))["looked_at"]
    client.cookies.pop("messages", None)
    page = client.post(reverse(f"admin:gateway_changeset_{wish}", args=[row.pk]), {"looked_at": looked_at})
    assert page.status_code == 302
    row.refresh_from_db()
    return " ".join(map(str, get_messages(page.wsgi_request)))


def raise_limit(client: Console, limit: Limit, value: str, **fields: Any) -> ChangeSet:
    """Drafts another value."""
    return draft(client, url(Limit, "change", limit.pk), "limit_form", value=value, **fields)


@pytest.fixture
def limit(alice: Tenant) -> Limit:
    """Alice's organization may send 5 requests a minute."""
    return Limit.objects.create(organization=alice.organization, measure="requests", value=5)


def test_what_is_drafted_is_applied_together_and_taken_back(ann: Console, alice: Tenant, limit: Limit) -> None:
    """Nothing changes before; then all of it at once, with the log of the page's own form; and all of it goes back."""
    row = raise_limit(ann, limit, "9")
    subject = {"organization": str(alice.organization.pk), "period": "day", "amount": "3"}
    assert draft(ann, url(Budget, "add"), "budget_form", draft_into=str(row.pk), **subject) == row
    provider = make_provider("https://vendor.example/v1")
    policy = Policy.objects.create(level="project", project=alice.project, providers=[provider.slug])
    draft(ann, url(Policy, "change", policy.pk), "policy_form", draft_into=str(row.pk), max_attempts="2")
    assert [str(one).split(":")[0] for one in row.changes.order_by("pk")] == [
        "Change limit", "Add budget", "Change policy"
    ]  # fmt: skip
    limit.refresh_from_db()
    assert (limit.value, Budget.objects.filter(organization=alice.organization).count()) == (5, 0)

    assert do(ann, "apply", row) == ""
    limit.refresh_from_db()
    policy.refresh_from_db()
    budget = Budget.objects.get(organization=alice.organization)
    assert (limit.value, budget.amount, policy.max_attempts) == (9, Decimal(3), 2)
    assert policy.providers == [provider.slug]
    assert (row.state, row.applied_by) == ("applied", name_of(ann))
    event = AuditEvent.objects.filter(table="billing_limit", row=str(limit.pk)).latest("pk")
    assert (event.before, event.after, event.actor_name) == ({"value": 5}, {"value": 9}, name_of(ann))

    assert do(ann, "roll_back", row) == ""
    assert row.state == "applied"  # until that is applied
    back = row.taken_back_by.get()
    assert do(ann, "apply", back) == ""
    limit.refresh_from_db()
    policy.refresh_from_db()
    row.refresh_from_db()
    assert (limit.value, policy.max_attempts, row.state) == (5, None, "rolled")
    assert not Budget.objects.filter(organization=alice.organization).exists()

    do(ann, "roll_back", back)
    again = back.taken_back_by.get()
    assert do(ann, "apply", again) == ""
    limit.refresh_from_db()
    assert (limit.value, Budget.objects.get(organization=alice.organization).amount) == (9, Decimal(3))


def test_a_set_is_applied_whole_or_not_at_all(ann: Console, alice: Tenant, limit: Limit) -> None:
    """The second change cannot be made any more: the first one is not either."""
    row = raise_limit(ann, limit, "9")
    subject = {"organization": str(alice.organization.pk), "period": "day", "amount": "3"}
    draft(ann, url(Budget, "add"), "budget_form", draft_into=str(row.pk), **subject)
    Budget.objects.create(organization=alice.organization, period="day", amount=1)
    assert "There is one already for this subject." in do(ann, "apply", row)
    limit.refresh_from_db()
    assert (limit.value, row.state) == (5, "draft")
    assert Budget.objects.get(organization=alice.organization).amount == 1


def test_nobody_writes_over_what_was_saved_meanwhile(ann: Console, limit: Limit) -> None:
    """What differs is told; a row that is gone is told as well."""
    row = raise_limit(ann, limit, "9")
    Limit.objects.filter(pk=limit.pk).update(value=7)
    assert "has been changed since this was drafted. value: 5 → 7" in do(ann, "apply", row)
    limit.refresh_from_db()
    assert (limit.value, row.state) == (7, "draft")
    limit.delete()
    assert "it is gone" in do(ann, "apply", row)


def test_of_two_who_apply_at_once_one_does(ann: Console, ben: Console, limit: Limit) -> None:
    """The other finds it done: it is written once."""
    row = raise_limit(ann, limit, "9")
    said: list[str] = []

    def apply(client: Console) -> None:
        said.append(do(client, "apply", ChangeSet.objects.get(pk=row.pk)))
        connection.close()

    threads = [Thread(target=apply, args=(client,)) for client in (ann, ben)]
    with transaction.atomic():
        ChangeSet.objects.select_for_update().get(pk=row.pk)
        for thread in threads:
            thread.start()
        until(lambda: waiting() == 2)
    for thread in threads:
        thread.join()
    assert sorted(said) == ["", "Nothing was done. It has been applied or given up."]
    assert AuditEvent.objects.filter(table="billing_limit", row=str(limit.pk), action="change").count() == 1


def waiting() -> int:
    """How many wait for another's lock in the tests' database."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_stat_clear_snapshot()")
        cursor.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
        return int(cursor.fetchone()[0])


def test_a_second_person_approves_what_needs_one(ann: Console, ben: Console, limit: Limit) -> None:
    """Never who drafted it, however it is asked; who approved it may apply it, or the drafter then."""
    row = raise_limit(ann, limit, "9")
    submit(ann, url(ChangeSet, "change", row.pk), "changeset_form", second_person="on")
    for wish in ("approve", "apply"):
        assert do(ann, wish, row) == "Nothing was done. Somebody else has to approve it."
    assert "Somebody else has to approve it." in do(ben, "apply", row)  # not approved yet
    assert do(ben, "approve", row) == ""
    assert (row.state, row.approved_by) == ("approved", name_of(ben))
    assert do(ann, "apply", row) == ""
    limit.refresh_from_db()
    assert limit.value == 9


def test_kinds_may_need_a_second_person_by_setting(ann: Console, ben: Console, limit: Limit, settings: Any) -> None:
    """Then nothing of them is saved or deleted past it, by whatever button."""
    settings.SECOND_PERSON = ["limit", "policy"]
    page = ann.get(url(Limit, "change", limit.pk))
    assert 'name="_save"' not in page.content.decode()
    row = drafted(submit(ann, url(Limit, "change", limit.pk), "limit_form", value="9", _save="Save"))
    assert ann.get(url(Limit, "delete", limit.pk)).status_code == 403
    assert ann.post(url(Limit, "delete", limit.pk), {"post": "yes"}).status_code == 403
    limit.refresh_from_db()
    assert limit.value == 5
    assert do(ann, "apply", row) == "Nothing was done. Somebody else has to approve it."
    assert do(ben, "approve", row) == ""
    assert do(ben, "apply", row) == ""
    limit.refresh_from_db()
    assert limit.value == 9
    wrong = submit(ann, url(Limit, "change", limit.pk), "limit_form", value="-1", _save="Save")
    assert wrong.status_code == 200  # told in the form, and neither saved nor drafted
    assert ChangeSet.objects.filter(drafted_by=name_of(ann)).count() == 1


def test_a_word_that_stands_for_no_kind_is_told_at_the_start(settings: Any) -> None:
    settings.SECOND_PERSON = ["limit", "prices"]
    (error,) = what_needs_a_second_person_is_known(None)
    assert (error.id, error.msg) == ("gateway.E012", "SECOND_PERSON names prices.")


def test_a_replay_saves_no_policy_past_a_second_person(ann: Console, alice: Tenant, settings: Any) -> None:
    settings.SECOND_PERSON = ["policy"]
    policy = Policy(level="project", project=alice.project, max_attempts=2)
    now = timezone.now()
    row = [str(value) if isinstance(value, UUID) else value for value in policy.row()]
    replay = Replay.objects.create(asked_by="ann", subject="it", policy=row, start=now, end=now, state="done")
    ann.post(reverse("admin:routing_policy_keep", args=[replay.pk]))
    assert not Policy.objects.filter(project=alice.project).exists()
    settings.SECOND_PERSON = []
    ann.post(reverse("admin:routing_policy_keep", args=[replay.pk]))
    assert Policy.objects.get(project=alice.project).max_attempts == 2


def price(tariff: Tariff, **fields: str) -> dict[str, str]:
    """Fields of a new version: both rates of input."""
    return {"tariff": str(tariff.pk), "rates__0__cost": "2", "rates__0__charge": "4", **fields}


def new_version(client: Console, tariff: Tariff, **fields: str) -> ChangeSet:
    """Drafts a version of a tariff, from its newest one."""
    path = f"{url(TariffVersion, 'add')}?tariff={tariff.pk}"
    return draft(client, path, "tariffversion_form", **price(tariff, **fields))


def rates_of(version: TariffVersion) -> list[tuple[str, Decimal | None, Decimal | None]]:
    """Item, cost and charge."""
    return list(version.rates.order_by("pk").values_list("item", "cost", "charge"))


def test_a_price_is_taken_back_by_a_version_as_before(ann: Console) -> None:
    tariff = make_tariff(input=("1", "3"))
    row = new_version(ann, tariff)
    assert tariff.versions.count() == 1
    assert do(ann, "apply", row) == ""
    made = tariff.versions.latest("effective_from")
    assert rates_of(made) == [("input", Decimal(2), Decimal(4))]
    do(ann, "roll_back", row)
    assert do(ann, "apply", row.taken_back_by.get()) == ""
    newest = tariff.versions.latest("effective_from")
    assert (tariff.versions.count(), rates_of(newest)) == (3, [("input", Decimal(1), Decimal(3))])
    assert newest.note == "As from 2020-01-01 00:00 again"


def test_a_price_to_come_is_taken_back_before_it_comes(ann: Console) -> None:
    """By its own date; one that has passed meanwhile is now."""
    tariff = make_tariff(input=("1", "3"))
    row = new_version(ann, tariff, effective_from_0="2999-01-01", effective_from_1="00:00:00")
    do(ann, "apply", row)
    assert tariff.versions.latest("effective_from").effective_from.year == 2999
    do(ann, "roll_back", row)
    assert do(ann, "apply", row.taken_back_by.get()) == ""
    assert tariff.versions.count() == 1
    soon = timezone.now() + timedelta(minutes=5)
    row = new_version(ann, tariff, effective_from_0=f"{soon:%Y-%m-%d}", effective_from_1=f"{soon:%H:%M:%S}")
    change = row.changes.get()
    change.after = {**(change.after or {}), "effective_from_0": ["2021-01-01"]}
    change.save()
    assert do(ann, "apply", row) == ""
    assert timezone.now() - tariff.versions.latest("effective_from").effective_from < timedelta(minutes=1)


def test_a_version_to_come_is_changed_with_its_rates(ann: Console) -> None:
    """Also its rates are looked at before; and they go back."""
    tariff = make_tariff(input=("1", "3"))
    version = add_version(tariff, timezone.now() + timedelta(days=9), input=("5", "6"))
    path = url(TariffVersion, "change", version.pk)
    row = draft(ann, path, "tariffversion_form", rates__0__charge="7")
    page = context_of(ann.get(url(ChangeSet, "change", row.pk)))
    assert page["changes"][0]["fields"] == [("input", "cost 5, charge 6", "cost 5, charge 7")]
    version.rates.update(charge=8)
    assert "rates-0-charge: 6 → 8" in do(ann, "apply", row)
    version.rates.update(charge=6)
    assert do(ann, "apply", row) == ""
    assert rates_of(version) == [("input", Decimal(5), Decimal(7))]
    do(ann, "roll_back", row)
    assert do(ann, "apply", row.taken_back_by.get()) == ""
    assert rates_of(version) == [("input", Decimal(5), Decimal(6))]


def test_a_price_drafted_from_an_older_one_is_refused(ann: Console) -> None:
    tariff = make_tariff(input=("1", "3"))
    row = new_version(ann, tariff)
    add_version(tariff, timezone.now(), input=("5", "6"))
    assert "has been changed since this was drafted. newest version: " in do(ann, "apply", row)
    assert (tariff.versions.count(), row.state) == (2, "draft")


def effects(client: Console, row: ChangeSet) -> list[str]:
    """What the page of a set says it would do."""
    page = client.get(f"{url(ChangeSet, 'change', row.pk)}?effects=1")
    return [line for one in context_of(page)["changes"] for line in one["effects"]]


def money_of(client: Console, row: ChangeSet) -> list[list[str]]:
    """The money on that page, with all its digits."""
    (one,) = context_of(client.get(f"{url(ChangeSet, 'change', row.pk)}?effects=1"))["changes"]
    return [[label, *map(exact, amounts)] for label, *amounts in one["money"]]


def test_what_a_price_would_do_is_shown(ann: Console, alice: Tenant, charlie: Tenant) -> None:
    """Of the last 7 days, priced anew: no older row, and none of another tariff."""
    tariff, other = make_tariff(input=("0.4", "0.44"), output=("1.6", "1.76")), make_tariff(input="1", output="1")
    version, another = tariff.versions.get(), other.versions.get()
    for tenant, at, its in (
        (alice, 0, version), (alice, 6, version), (charlie, 1, version), (alice, 9, version), (alice, 0, another)
    ):  # fmt: skip
        make_usage(tenant, timezone.now() - timedelta(days=at), tariff_version=its.pk)
    row = new_version(ann, tariff, rates__0__cost="0.4", rates__0__charge="0.88")
    lines = effects(ann, row)
    assert lines[:2] == ["Of all 3 generations of the last 7 days:", "2 keys are hit."]
    assert money_of(ann, row) == [
        ["Charged", "$0.00396", "$0.00528", "$0.00132"],
        ["Providers' cost", "$0.0036", "$0.0036", "$0"],
    ]
    assert tariff.versions.count() == 1


def test_what_a_limit_and_a_budget_would_refuse_is_shown(ann: Console, alice: Tenant, charlie: Tenant) -> None:
    """At their face, in the order of the requests; Charlie's are not counted."""
    at = (timezone.now() - timedelta(days=2)).replace(hour=12, minute=0, second=1)
    for second in range(4):
        make_usage(alice, at + timedelta(seconds=second), charge=Decimal(1))
        make_usage(charlie, at + timedelta(seconds=second), charge=Decimal(1))
    subject = {"organization": str(alice.organization.pk)}
    row = draft(ann, url(Limit, "add"), "limit_form", **subject, measure="requests", value="3")
    budget = {**subject, "period": "day", "amount": "2"}
    draft(ann, url(Budget, "add"), "budget_form", draft_into=str(row.pk), **budget)
    shown = ["Of all 4 generations of the last 7 days:", "1 key is hit."]
    assert effects(ann, row) == [
        *shown, "1 would have been refused by this alone.", *shown, "2 would have been refused by this alone."
    ]  # fmt: skip


def test_what_a_policy_would_do_is_shown(ann: Console, alice: Tenant) -> None:
    model = make_model(make_provider("https://vendor.example/v1"), "model-1")
    policy = Policy.objects.create(level="project", project=alice.project, max_attempts=3)
    make_usage(alice, model=model.slug)  # without a plan: it is left out, and counted
    row = draft(ann, url(Policy, "change", policy.pk), "policy_form", max_attempts="2")
    lines = effects(ann, row)
    assert lines[0] == "Of all 1 generations of the last 7 days:"
    assert lines[2] == "0 would have gone elsewhere, and 0 would have failed."


def test_what_was_given_up_is_applied_by_nobody(ann: Console, limit: Limit) -> None:
    row = raise_limit(ann, limit, "9")
    assert do(ann, "give_up", row) == ""
    for wish in ("apply", "approve", "give_up", "roll_back"):
        assert do(ann, wish, row).startswith("Nothing was done. ")
    limit.refresh_from_db()
    assert limit.value == 5


def test_nobody_adds_to_another_persons_set(ann: Console, ben: Console, limit: Limit) -> None:
    row = raise_limit(ann, limit, "9")
    assert raise_limit(ben, limit, "8", draft_into=str(row.pk)) != row
    assert row.changes.count() == 1


def test_an_owner_drafts_nothing_and_sees_no_set(ann: Console, alice: Tenant, limit: Limit) -> None:
    """Their own budgets they save as before."""
    row = raise_limit(ann, limit, "9")
    user = User.objects.create_user(f"own-{alice.organization.slug}", is_staff=True)
    Membership.objects.create(user=user, organization=alice.organization, role=Role.OWNER)
    owner = client_of(user)
    assert owner.get(url(ChangeSet, "changelist")).status_code == 403
    assert owner.get(url(ChangeSet, "change", row.pk)).status_code == 403
    for wish in ("approve", "apply", "roll_back", "give_up"):
        assert owner.post(reverse(f"admin:gateway_changeset_{wish}", args=[row.pk])).status_code == 403
    html = owner.get(url(Budget, "add")).content.decode()
    assert 'name="_draft"' not in html
    fields = {**filled(html, "budget_form"), "organization": str(alice.organization.pk), "period": "day", "amount": "2"}
    assert owner.post(url(Budget, "add"), {**fields, "_draft": "1"}).status_code == 302
    assert Budget.objects.get(organization=alice.organization).amount == 2
    assert ChangeSet.objects.filter(drafted_by=user.username).count() == 0


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    """No lock of a test outlives it."""
    yield
    assert waiting() == 0


def test_what_is_kept_is_in_one_language(alice: Tenant, limit: Limit, ann: Console) -> None:
    """Whoever approves it may read another one than who drafted it."""
    ann.defaults["HTTP_ACCEPT_LANGUAGE"] = "zh-hans"
    row = raise_limit(ann, limit, "9")
    do(ann, "apply", row)
    do(ann, "roll_back", row)
    back = ChangeSet.objects.get(takes_back=row)
    kept = [row.title, back.title, *(one.subject for made in (row, back) for one in made.changes.all())]
    assert len(kept) == 4 and "".join(kept).isascii() and back.title == f"Roll back: {row.title}"


def test_who_approves_approves_what_they_have_looked_at(
    ann: Console, ben: Console, alice: Tenant, limit: Limit
) -> None:
    row = raise_limit(ann, limit, "9", second_person="on")
    ChangeSet.objects.filter(pk=row.pk).update(second_person=True)
    looked_at = context_of(ben.get(url(ChangeSet, "change", row.pk)))["looked_at"]
    budget = {"organization": str(alice.organization.pk), "period": "month", "amount": "1000000"}
    draft(ann, url(Budget, "add"), "budget_form", **budget, draft_into=str(row.pk))
    assert "More was drafted into it" in do(ben, "approve", row, looked_at)
    assert row.state == "draft" and not row.approved_by
    assert do(ben, "approve", row) == "" and row.approved_by == name_of(ben)


def test_a_box_that_is_unticked_is_seen(ann: Console, alice: Tenant) -> None:
    budget = Budget.objects.create(organization=alice.organization, period="month", amount=Decimal(5), hard=True)
    page = url(Budget, "change", budget.pk)
    fields = dict(filled(ann.get(page).content.decode(), "budget_form"))
    assert fields.pop("hard") == ["on"]
    row = drafted(ann.post(page, {**fields, "_draft": "1"}))
    (shown,) = context_of(ann.get(url(ChangeSet, "change", row.pk)))["changes"]
    assert shown["fields"] == [("Hard", "on", "-")]
    assert do(ann, "apply", row) == ""
    budget.refresh_from_db()
    assert budget.hard is False


def test_it_is_applied_in_another_language_than_it_was_drafted_in(ann: Console) -> None:
    tariff = make_tariff(input=("1", "2"), output=("2", "4"))
    ann.defaults["HTTP_ACCEPT_LANGUAGE"] = "zh-hans"
    moment = timezone.now() + timedelta(days=9)
    row = new_version(ann, tariff, effective_from_0=f"{moment:%Y-%m-%d}", effective_from_1=f"{moment:%H:%M:%S}")
    ann.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    assert do(ann, "apply", row) == ""
    made = tariff.versions.latest("effective_from")
    assert made.effective_from == moment.replace(microsecond=0)


def test_an_auditor_is_not_told_what_cannot_be_reckoned_for_them(ann: Console, limit: Limit) -> None:
    row = raise_limit(ann, limit, "9")
    user = User.objects.create_user(f"auditor-{token_hex(4)}", is_staff=True)
    user.groups.add(Group.objects.get(name=Office.AUDITOR))
    page = context_of(client_of(user).get(url(ChangeSet, "change", row.pk), {"effects": "1"}))
    assert page["effects"] is False and page["changes"][0]["effects"] == []
