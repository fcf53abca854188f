"""Keys in the console: a secret is shown once and kept nowhere, a revoked key stays revoked."""

import re
import secrets
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import reverse

from accounts.keys import digest, is_well_formed
from accounts.models import ApiKey, Organization, Project, User
from routing.models import Model
from tests.console.browser import console, context_of, filled, submit
from tests.stage.cast import NOBODYS, Tenant, make_key

LIST = reverse("admin:accounts_apikey_changelist")
ADD = reverse("admin:accounts_apikey_add")
FORM = "apikey_form"


def page(key: ApiKey, name: str = "change") -> str:
    """The address of a key's page."""
    return reverse(f"admin:accounts_apikey_{name}", args=[key.pk])


def make(client: Client, tenant: Tenant, **fields: Any) -> Any:
    """Sends the form of a new key of `tenant`."""
    changes = {"project": str(tenant.project.pk), "name": f"key {secrets.token_hex(4)}", **fields}
    return submit(client, ADD, FORM, **changes)


def shown_secret(response: Any) -> str:
    """The one secret on a page."""
    (found,) = set(re.findall(r"sk-ml-[0-9A-Za-z]{36}", response.content.decode()))
    return str(found)


def everything_stored() -> str:
    """Every row of every table of this database, as text."""
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"select string_agg(t::text, ' ') from {connection.ops.quote_name(table)} t")  # noqa: S608
            found.append(cursor.fetchone()[0] or "")
    return " ".join(found)


def is_alive(key: ApiKey) -> bool:
    """Whether a hold would be made for the key."""
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from accounts_alive_key where id = %s", [key.pk])
        return bool(cursor.fetchone()[0])


def test_it_works(alice: Tenant) -> None:
    client = console()
    names = sorted(Model.objects.create(slug=f"lab/{secrets.token_hex(4)}", name="A").slug for _ in range(2))
    response = make(
        client,
        alice,
        name="production",
        allowed_models=f"{names[0]}\r\n\r\n {names[1]} \r\n",
        allowed_endpoints="chat/completions\r\nfiles",
        scopes=["files", "management"],
    )
    assert response.status_code == 200
    secret = shown_secret(response)
    assert is_well_formed(secret)
    key = alice.project.keys.get(name="production")
    assert bytes(key.digest) == digest(secret, settings.KEY_PEPPERS[0])
    assert key.prefix == f"sk-ml-…{secret[-4:]}"
    assert (key.scopes, key.allowed_models, key.allowed_ips) == (["files", "management"], names, [])
    assert key.allowed_endpoints == ["chat/completions", "files"]
    assert is_alive(key)


def test_it_shows_a_secret_once_and_keeps_it_nowhere(alice: Tenant) -> None:
    client = console()
    response = make(client, alice, name="once")
    secret = shown_secret(response)
    assert "no-store" in response["Cache-Control"]
    assert response["Referrer-Policy"] == "same-origin"
    key = alice.project.keys.get(name="once")
    pages = [LIST, page(key), page(key, "history"), page(key, "revoke"), reverse("admin:index")]
    pages.append(reverse("admin:accounts_project_change", args=[alice.project.pk]))
    for address in (*pages, f"{LIST}?q={key.prefix[-4:]}"):
        assert secret[6:-4] not in client.get(address).content.decode(), address
    stored = everything_stored()
    assert key.name in stored and key.prefix in stored, "the search would not have found it"
    assert secret[6:-4] not in stored and secret.encode().hex() not in stored


def test_it_makes_no_second_key_when_the_form_is_sent_again(alice: Tenant) -> None:
    client = console()
    fields: dict[str, Any] = filled(client.get(ADD).content.decode(), FORM)
    fields |= {"project": str(alice.project.pk), "name": "twice"}
    first = client.post(ADD, fields)
    secret = shown_secret(first)
    second = client.post(ADD, fields)
    html = second.content.decode()
    assert second.status_code == 200 and "made already" in html
    assert secret not in html and "sk-ml-" not in html.replace(f"sk-ml-…{secret[-4:]}", "")
    key = alice.project.keys.get(name="twice")
    assert bytes(key.digest) == digest(secret, settings.KEY_PEPPERS[0])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("project", NOBODYS),
        ("ticket", "not an id"),
        ("ticket", str(uuid5(NAMESPACE_URL, "of somebody's playground"))),
        ("scopes", ["inference", "root"]),
        ("scopes", []),
        ("allowed_ips", "10.0.0.0/8\n10.0.0.300"),
        ("allowed_ips", "10.0.0.1/8"),
        ("max_request_price", "-1"),
        ("max_request_price", "NaN"),
        ("max_request_price", "1e400"),
        ("min_output_cap", "-1"),
        ("valid_from_0", "2026-02-30"),
    ],
)
def test_it_refuses_a_key_that_makes_no_sense(field: str, value: Any, alice: Tenant) -> None:
    response = make(console(), alice, **{field: value})
    assert response.status_code == 200
    assert "sk-ml-" not in response.content.decode()
    assert list(alice.project.keys.all()) == [alice.key]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("allowed_models", "no/such-model", "There is no model no/such-model. Write its slug"),
        ("allowed_models", "{slug}\nno/such-model", "There is no model no/such-model. Write its slug"),
        ("allowed_models", "{slug}:vendor", "There is no model {slug}:vendor."),
        ("allowed_models", "{slug}-too", "{slug}-too is another name of {slug}: write that one."),
        ("allowed_models", "*", "There is no model *."),
        ("allowed_endpoints", "/v1/chat/completions", "There is no endpoint /v1/chat/completions. There are: chat/com"),
        (
            "allowed_endpoints",
            "chat/completions\nmodel",
            "There is no endpoint model. There are: chat/completions, completions, embeddings, exports, files",
        ),
    ],
)
def test_a_key_allows_what_there_is(field: str, value: str, words: str, alice: Tenant) -> None:
    slug = f"lab/{secrets.token_hex(4)}"
    Model.objects.create(slug=slug, name="A", aliases=[f"{slug}-too"])
    client = console()
    value, words = value.replace("{slug}", slug), words.replace("{slug}", slug)
    assert words in make(client, alice, **{field: value}).content.decode()
    assert list(alice.project.keys.all()) == [alice.key]
    assert words in submit(client, page(alice.key), FORM, **{field: value}).content.decode()
    alice.key.refresh_from_db()
    assert (alice.key.allowed_models, alice.key.allowed_endpoints) == ([], [])


def test_what_a_key_allows_may_stay_though_it_be_gone(alice: Tenant) -> None:
    old = {"allowed_models": ["gone/since"], "allowed_endpoints": ["gone"]}
    key, _ = make_key(alice.project, **old)
    client = console()
    assert submit(client, page(key), FORM, name="renamed").status_code == 302
    assert ApiKey.objects.values("name", *old).get(pk=key.pk) == {"name": "renamed", **old}


def test_an_organizations_page_shows_its_members_and_leads_to_them(alice: Tenant) -> None:
    client = console()
    address = reverse("admin:accounts_organization_change", args=[alice.organization.pk])
    html = client.get(address).content.decode()
    (member,) = alice.organization.memberships.all()
    assert f'href="{reverse("admin:accounts_membership_change", args=[member.pk])}"' in html and "Owner" in html
    forged = {"memberships-TOTAL_FORMS": "1", "memberships-INITIAL_FORMS": "0", "memberships-0-role": "auditor"}
    submit(client, address, "organization_form", **forged, **{"memberships-0-user": str(alice.user.pk)})
    assert list(alice.organization.memberships.values_list("role", flat=True)) == ["owner"]
    assert "emberships" not in client.get(reverse("admin:accounts_organization_add")).content.decode()


def test_it_refuses_a_window_that_never_opens(alice: Tenant) -> None:
    window = {
        "valid_from_0": "2031-01-02",
        "valid_from_1": "10:00",
        "expires_at_0": "2031-01-02",
        "expires_at_1": "10:00",
    }
    assert "Must be later than the start." in make(console(), alice, **window).content.decode()
    assert list(alice.project.keys.all()) == [alice.key]


@pytest.mark.row("B366")
def test_it_changes_what_a_key_may_do_but_not_what_it_is(alice: Tenant, charlie: Tenant) -> None:
    before = ApiKey.objects.values().get(pk=alice.key.pk)
    forged = {
        "digest": "00" * 32,
        "prefix": "sk-ml-…0000",
        "project": str(charlie.project.pk),
        "id": str(uuid4()),
        "ticket": str(uuid4()),
        "revoked_at_0": "",
        "created_at_0": "2020-01-01",
        "created_at_1": "00:00",
    }
    response = submit(
        console(), page(alice.key), FORM, name="renamed", expires_at_0="2031-01-02", expires_at_1="10:00", **forged
    )
    assert response.status_code == 302
    assert "sk-ml-" not in response.content.decode()
    after = ApiKey.objects.values().get(pk=alice.key.pk)
    assert after == {**before, "name": "renamed", "expires_at": datetime(2031, 1, 2, 10, tzinfo=UTC)}
    assert ApiKey.objects.count() == ApiKey.objects.exclude(pk=forged["id"]).count()


def test_an_untouched_form_changes_nothing(alice: Tenant) -> None:
    key, _ = make_key(
        alice.project, allowed_ips=["10.0.0.0/8", "::1"], max_request_price="0.500000000001", owner=alice.user
    )
    before = ApiKey.objects.values().get(pk=key.pk)
    client = console()
    assert 'value="0.500000000001"' in client.get(page(key)).content.decode()
    assert submit(client, page(key), FORM).status_code == 302
    assert ApiKey.objects.values().get(pk=key.pk) == before
    assert "No fields changed." in client.get(page(key, "history")).content.decode()


def test_it_asks_before_it_revokes(alice: Tenant) -> None:
    client = console()
    response = client.get(page(alice.key, "revoke"))
    assert response.status_code == 200 and alice.key.prefix in response.content.decode()
    assert is_alive(alice.key)
    response = client.post(page(alice.key, "revoke"), {"confirmed": "yes"})
    assert (response.status_code, response["Location"]) == (302, page(alice.key))
    assert not is_alive(alice.key)
    assert "Revoked." in client.get(page(alice.key, "history")).content.decode()


@pytest.mark.row("B366")
def test_it_revokes_once(alice: Tenant) -> None:
    client = console()
    client.post(page(alice.key, "revoke"), {"confirmed": "yes"})
    first = ApiKey.objects.get(pk=alice.key.pk).revoked_at
    assert first is not None
    client.post(page(alice.key, "revoke"), {"confirmed": "yes"})
    submit(client, page(alice.key), FORM, revoked_at="", revoked_at_0="", revoked_at_1="")
    assert ApiKey.objects.get(pk=alice.key.pk).revoked_at == first


def test_it_revokes_the_ticked_keys_once_confirmed(alice: Tenant) -> None:
    client = console()
    other, _ = make_key(alice.project)
    kept, _ = make_key(alice.project)
    ticked = {"action": "revoke_selected", "_selected_action": [str(alice.key.pk), str(other.pk)]}
    response = client.post(LIST, ticked)
    html = response.content.decode()
    assert alice.key.prefix in html and other.prefix in html and kept.prefix not in html
    assert is_alive(alice.key) and is_alive(other)
    assert client.post(LIST, {**ticked, "confirmed": "yes"}).status_code == 302
    assert not is_alive(alice.key) and not is_alive(other)
    assert is_alive(kept)


def test_it_refuses_to_revoke_for_staff_and_strangers(alice: Tenant) -> None:
    assert console(superuser=False).post(page(alice.key, "revoke"), {"confirmed": "yes"}).status_code == 403
    assert Client().post(page(alice.key, "revoke"), {"confirmed": "yes"}).status_code == 302
    forged = console(enforce_csrf_checks=True).post(page(alice.key, "revoke"), {"confirmed": "yes"})
    assert forged.status_code == 403
    assert is_alive(alice.key)


@pytest.mark.parametrize("address", ["not-an-id", NOBODYS])
def test_it_knows_no_other_key(address: str) -> None:
    assert console().post(f"{LIST}{address}/revoke/", {"confirmed": "yes"}).status_code == 404


def test_it_filters_by_state(alice: Tenant) -> None:
    past, future = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
    keys = {
        "usable": make_key(alice.project, valid_from=past, expires_at=future)[0],
        "expired": make_key(alice.project, expires_at=past)[0],
        "revoked": make_key(
            alice.project, revoked_at=past, expires_at=past, valid_from=datetime(2019, 1, 1, tzinfo=UTC)
        )[0],
        "waiting": make_key(alice.project, valid_from=future)[0],
    }
    alice.key.delete()
    client = console()
    for state, key in keys.items():
        shown = context_of(client.get(LIST, {"state": state, "q": alice.organization.slug}))["cl"].result_list
        assert list(shown) == [key], state
        assert is_alive(key) == (state == "usable")


@pytest.mark.parametrize("what", ["owner disabled", "project off", "organization off"])
def test_a_key_whose_owner_or_tenant_is_off_is_not_called_usable(what: str, alice: Tenant) -> None:
    alice.key.owner = User.objects.create_user(f"owner-{secrets.token_hex(4)}", is_active=what != "owner disabled")
    alice.key.save()
    Project.objects.filter(pk=alice.project.pk).update(active=what != "project off")
    Organization.objects.filter(pk=alice.organization.pk).update(active=what != "organization off")
    client = console()

    def listed(state: str) -> list[str]:
        page = context_of(client.get(LIST, {"q": alice.organization.slug, "state": state}))["cl"]
        return [page.model_admin.state(key) for key in page.result_list]

    assert listed("usable") == []
    assert listed("off") == listed("") == [what]
