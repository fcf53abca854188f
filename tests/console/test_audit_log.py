"""The audit log: what is changed by whatever way is in it, no secret is, and who tampers with it is told of."""

import secrets
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection, transaction

from accounts.access.access import rule_of
from accounts.access.table import Verb
from accounts.log import Action, log, seal_log, wrong_blocks
from accounts.models import ApiKey, AuditBlock, AuditEvent, Organization, User
from billing.auditing import audit
from billing.models import AuditFinding, Budget, Recipient
from routing.models import Credential, Provider
from tests.console.browser import Console, console, console_role, context_of, filled, submit, url
from tests.stage.cast import Tenant

SECRET = "sk-" + "Secret" * 6


def events(row: Any) -> list[Any]:
    """Those of a row, oldest first."""
    return list(AuditEvent.objects.filter(table=row._meta.db_table, row=str(row.pk)).order_by("pk"))


def test_a_change_is_logged_with_who_from_where_and_what(alice: Tenant) -> None:
    client = console()
    person = User.objects.get(pk=client.session["_auth_user_id"])
    address = url(Organization, "change", alice.organization.pk)
    fields = filled(client.get(address).content.decode(), "organization_form")
    response = client.post(address, {**fields, "name": ["Renamed"]}, REMOTE_ADDR="203.0.113.7")
    assert response.status_code == 302
    added, event = events(alice.organization)
    assert (added.action, added.before, added.actor) == ("add", None, None)
    assert (event.action, event.actor, event.actor_name) == ("change", person.pk, person.username)
    assert (event.address, event.organization) == ("203.0.113.7", alice.organization.pk)
    assert (event.before, event.after) == ({"name": alice.organization.name}, {"name": "Renamed"})
    client.post(address, {**fields, "name": ["Renamed"]})
    assert len(events(alice.organization)) == 2  # nothing changed


def test_a_row_or_a_person_is_looked_for_in_an_index(alice: Tenant) -> None:
    """Of which there is one each, for one who sees all and for one who sees an organization's."""
    client, asked = console(), list[tuple[str, Any]]()

    def note(execute: Any, statement: str, values: Any, *args: Any) -> Any:
        asked.append((statement, values))
        return execute(statement, values, *args)

    address, id = url(AuditEvent, "changelist"), alice.organization.pk
    with connection.execute_wrapper(note):
        assert str(id) in client.get(address, {"q": str(id)}).content.decode()
    (found,) = [one for one in asked if one[1] and str(id) in one[1] and '"accounts_auditevent"."row" = ' in one[0]]
    for sees in ("all", str(id)):
        with console_role(), connection.cursor() as cursor:
            cursor.execute("select set_config('meterline.sees', %s, false)", [sees])
            cursor.execute("set enable_seqscan = off; set enable_indexscan = off")
            cursor.execute(f"explain {found[0]}", found[1])
            plan = "\n".join(line for (line,) in cursor.fetchall())
            cursor.execute("reset enable_seqscan; reset enable_indexscan")
        assert "Bitmap Index Scan on events_by_row" in plan and "Bitmap Index Scan on events_by_actor" in plan, plan


def test_what_goes_past_the_forms_is_logged_as_well(alice: Tenant) -> None:
    budget = Budget.objects.create(organization=alice.organization, period="day", amount=5)
    Budget.objects.filter(pk=budget.pk).update(amount=6)
    with connection.cursor() as cursor:
        cursor.execute("delete from billing_budget where id = %s", [budget.pk])
    added, changed, deleted = events(budget)
    assert added.after["amount"] == 5 and added.after["organization_id"] == str(alice.organization.pk)
    assert (changed.before, changed.after) == ({"amount": 5}, {"amount": 6})
    assert (deleted.action, deleted.after, deleted.before["amount"]) == ("delete", None, 6)
    assert {event.organization for event in (added, changed, deleted)} == {alice.organization.pk}
    assert {event.actor_name for event in (added, changed, deleted)} != {""}


def test_no_secret_is_in_it(alice: Tenant) -> None:
    provider = Provider.objects.create(slug=f"p-{secrets.token_hex(4)}", name="P", base_url="https://p.example/v1")
    credential = Credential(provider=provider)
    credential.put(SECRET)
    credential.save()
    first = credential.sealed
    credential.put(SECRET + "2")
    credential.save()
    alice.user.set_password(SECRET)
    alice.user.save()
    added, changed = events(credential)
    assert (added.after["sealed"], changed.before["sealed"], changed.after["sealed"]) == ("(secret)",) * 3
    assert events(alice.user)[-1].after == {"password": "(secret)"}
    assert events(alice.key)[0].after["digest"] == "(secret)"
    with connection.cursor() as cursor:
        cursor.execute("select string_agg(e::text, '') from accounts_auditevent e")
        ((text,),) = cursor.fetchall()
    for secret in (SECRET, first, credential.sealed, alice.secret, bytes(alice.key.digest).hex(), alice.user.password):
        assert secret not in text


def test_a_key_that_is_shown_is_logged(alice: Tenant) -> None:
    client = console()
    fields = {"project": str(alice.project.pk), "name": "shown"}
    assert "sk-ml-" in submit(client, url(ApiKey, "add"), "apikey_form", **fields).content.decode()
    added, shown = events(ApiKey.objects.get(project=alice.project, name="shown"))
    assert (added.action, shown.action, shown.organization) == ("add", "reveal", alice.organization.pk)
    assert shown.actor_name == User.objects.get(pk=client.session["_auth_user_id"]).username
    page = client.get(url(AuditEvent, "changelist"), {"q": shown.row})
    assert [one.pk for one in context_of(page)["cl"].queryset] == [shown.pk, added.pk]


def test_the_console_logs_no_change_of_its_own_making(alice: Tenant) -> None:
    with console_role(), pytest.raises(ProgrammingError, match="logged by triggers"):
        log(Action.CHANGE, alice.project, None)


@pytest.fixture
def sealed(alice: Tenant) -> Iterator[list[AuditEvent]]:
    """Three events that are sealed, the newest ones. What is done to them is undone."""
    for name in ("one", "two"):
        Organization.objects.filter(pk=alice.organization.pk).update(name=name)
    seal_log()
    with transaction.atomic():
        yield events(alice.organization)
        transaction.set_rollback(True)


TAMPERED = {
    "changed": 'update accounts_auditevent set after = \'{{"name": "three"}}\' where id = {1}',
    "missing": "delete from accounts_auditevent where id = {1}",
    "added": "insert into accounts_auditevent select {0}, at, 1, 'nobody', '', action, \"table\", \"row\","
    " organization, before, after, '' from accounts_auditevent where id = {1}",
    "sealed anew": "update accounts_auditblock set digest = repeat('0', 64) where last_id >= {1}",
}


@pytest.mark.parametrize("how", TAMPERED)
def test_who_tampers_with_it_is_told_of(how: str, sealed: list[AuditEvent]) -> None:
    newest = AuditBlock.objects.latest("number")
    last = newest.number
    assert wrong_blocks(1, last) == []
    # Whatever else runs may have written events since, which no block has yet.
    free = -1 if how != "added" else AuditEvent.objects.filter(pk__lte=newest.last_id).latest("pk").pk
    with connection.cursor() as cursor:
        if how == "added":  # in the place of one that is no more
            cursor.execute("delete from accounts_auditevent where id = %s", [free])
        cursor.execute(TAMPERED[how].format(free, sealed[1].pk))
    assert wrong_blocks(1, last) != []
    with pytest.raises(CommandError, match="of the audit log does not hold"):
        call_command("audit", stdout=StringIO())


def test_the_auditor_finds_it(alice: Tenant) -> None:
    seal_log()
    audit()
    block = AuditBlock.objects.latest("number")
    try:
        AuditBlock.objects.filter(pk=block.pk).update(digest="0" * 64)
        audit()
        places = AuditFinding.objects.filter(gone_at=None).values_list("place", flat=True)
        assert f"audit log, block {block.number}" in places
    finally:
        AuditBlock.objects.filter(pk=block.pk).update(digest=block.digest)
    audit()
    audit()
    assert not AuditFinding.objects.filter(gone_at=None, place__startswith="audit log").exists()


def test_sealing_goes_on_where_it_was(alice: Tenant) -> None:
    seal_log()
    before = AuditBlock.objects.latest("number")
    assert seal_log() == 0
    Organization.objects.filter(pk=alice.organization.pk).update(name="again")
    assert seal_log() == 1
    after = AuditBlock.objects.latest("number")
    assert (after.number, after.previous) == (before.number + 1, before.digest)
    assert after.last_id >= events(alice.organization)[-1].pk > before.last_id
    assert wrong_blocks(1, after.number) == []


def test_an_organization_is_told_of_rows_that_its_members_may_see() -> None:
    """Else an event would show what no page does: what the operator pays, or to whom."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select c.relname from pg_trigger t join pg_class c on c.oid = t.tgrelid"
            " where t.tgname = 'audit' and split_part(encode(t.tgargs, 'escape'), '\\000', 1) <> ''"
        )
        told = {table for (table,) in cursor.fetchall()}
    seen = {model._meta.db_table for model in apps.get_models()
            if any(Verb.VIEW in rights for rights in rule_of(model).roles.values())}  # fmt: skip
    assert told - seen == {"billing_credit", "accounts_invitation"}  # of the page of balances, and of invitations
    assert "accounts_project" in told


def test_finance_is_told_of_rows_that_it_may_see(alice: Tenant) -> None:
    recipient = Recipient.objects.create(organization=alice.organization, channel="mail", address="a@b.example")
    budget = Budget.objects.create(organization=alice.organization, period="day", amount=5)
    person = User.objects.create_user(secrets.token_hex(4), is_staff=True)
    person.groups.add(Group.objects.get(name="finance"))
    client = Console()
    client.force_login(person)
    for row, status in ((budget, 200), (recipient, 302)):
        (event,) = events(row)
        assert client.get(url(AuditEvent, "change", event.pk)).status_code == status
