"""The console's search: what it finds, for whom, and what it never tells."""

from typing import Any

import pytest
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from accounts.models import ApiKey, Organization, Project, User
from accounts.roles import Office, Role
from billing.models import Hold, Usage
from gateway.console.search import MOST
from gateway.models import Refused
from routing.models import Provider
from tests.console.browser import Rows, console, context_of, make_refused, make_rows, make_usage, url
from tests.console.test_pages import queries
from tests.console.test_self_service import client_of, member, official
from tests.stage.cast import Tenant, make_key, make_tenant

SEARCH = reverse("search")


def found(client: Client, text: str) -> dict[str, list[str]]:
    """By kind, the pages of what is found."""
    response = client.get(SEARCH, {"q": text, "stay": "1"})
    assert response.status_code == 200
    return {kind.title: [hit.link for hit in kind.hits] for kind in context_of(response)["found"]}


def goes_to(client: Client, text: str) -> str:
    """Where the box leads to at once; empty: to the list."""
    response = client.get(SEARCH, {"q": text})
    return str(response["Location"]) if response.status_code == 302 else ""


def of(row: Model) -> str:
    """A row's page."""
    return url(type(row), "change", row.pk)


@pytest.fixture
def rows(database: None) -> Any:
    """A row of every page."""
    made = make_rows(make_tenant("alice"))
    yield made
    made[Hold].delete()


def test_an_id_leads_straight_to_its_page(rows: Rows) -> None:
    client = console()
    for kind in (Usage, Hold, Refused, Organization, Project, ApiKey):
        id: Any = rows[kind].pk
        for text in (str(id), f" gen-{id.hex} "):
            assert goes_to(client, text) == of(rows[kind]), (kind, text)
    assert found(client, "3f0c5a9e7d214b869a4c52e1d8b7f6a0") == {}


def test_a_name_is_found_in_every_table_that_has_it(rows: Rows) -> None:
    slug = str(rows[Organization])
    mail = User.objects.create_user(f"person-{slug[6:]}", email=f"{slug[6:]}@example.com")
    shown = found(console(), slug[6:])
    assert shown["Organizations"] == [of(rows[Organization])]
    assert shown["Providers"] == [of(rows[Provider])] and len(shown["Models"]) == 1
    assert of(mail) in shown["People"] and len(shown["People"]) == 3
    assert goes_to(console(), f"{slug[6:]}@EXAMPLE.com") == of(mail)
    assert goes_to(console(), slug[6:]) == ""  # of four kinds, and none is called so


def test_the_end_of_a_key_finds_it(alice: Tenant, charlie: Tenant) -> None:
    end = alice.key.prefix[-4:]
    for text in (end, alice.key.prefix, f"…{end}"):
        assert found(console(), text)["Keys that end so"] == [of(alice.key)]
    response = console().get(SEARCH, {"q": alice.secret, "stay": "1"})
    assert alice.secret not in response.content.decode()
    assert [hit.link for kind in context_of(response)["found"] for hit in kind.hits] == [of(alice.key)]
    _user, stranger = member(charlie, Role.OWNER)
    assert found(stranger, end) == {} or of(alice.key) not in str(found(stranger, end))


def test_nobody_finds_what_they_may_not_see(alice: Tenant, charlie: Tenant) -> None:
    user, developer = member(alice, Role.DEVELOPER)
    own, _ = make_key(alice.project, name=f"mine-{alice.organization.slug}", owner=user)
    usage, refused, theirs = make_usage(alice), make_refused(alice), make_usage(charlie)
    mine = make_usage(alice, key=own.pk)
    _user, owner = member(alice, Role.OWNER)
    finance = client_of(official(Office.FINANCE))
    texts = [
        charlie.organization.slug,
        theirs.pk.hex,
        str(charlie.project.pk),
        charlie.key.prefix,
        charlie.user.username,
    ]
    for client in (owner, developer):
        for text in texts:
            assert charlie.organization.slug not in str(found(client, text)), text
            assert found(client, text) == {}, text
            assert goes_to(client, text) == ""
    assert goes_to(owner, usage.pk.hex) == of(usage) and goes_to(developer, mine.pk.hex) == of(mine)
    assert goes_to(owner, refused.pk.hex) == of(refused)
    assert found(developer, usage.pk.hex) == found(developer, refused.pk.hex) == {}
    assert set(found(developer, alice.organization.slug)) == {"Organizations", "Keys"}
    assert set(found(owner, alice.organization.slug)) == {"Organizations", "Keys", "People"}
    assert set(found(finance, alice.organization.slug)) == {"Organizations"}
    nobody = client_of(User.objects.create_user(f"nobody-{alice.organization.slug}", is_staff=True))
    assert found(nobody, alice.organization.slug) == {} == found(nobody, usage.pk.hex)


def test_it_is_bounded(alice: Tenant) -> None:
    for number in range(MOST + 2):
        make_key(alice.project, name=f"many-{alice.organization.slug}-{number}")
    response = console().get(SEARCH, {"q": f"many-{alice.organization.slug}"})
    (kind,) = context_of(response)["found"]
    assert (len(kind.hits), kind.more) == (MOST, True)


@pytest.mark.parametrize("text", ["", "x", "%" * 100, "_" * 100, "\0\0", "'; drop table x; --", "…", "<b>"])
def test_it_survives_any_text(text: str, database: None) -> None:
    response = console().get(SEARCH, {"q": text, "stay": "1"})
    assert response.status_code == 200 and "<b>" not in response.content.decode()


def test_usage_is_asked_for_by_its_key_alone(alice: Tenant) -> None:
    usage = make_usage(alice)
    for text in (alice.organization.slug, "ab", alice.key.prefix[-4:]):
        assert not [sql for sql in queries(console(), SEARCH, q=text, stay="1") if "billing_usage" in sql]
    (asked,) = [sql for sql in queries(console(), SEARCH, q=usage.pk.hex, stay="1") if '"billing_usage"' in sql]
    with connection.cursor() as cursor:
        cursor.execute("set local enable_seqscan = off")
        cursor.execute(f"explain {asked}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "_pkey" in plan and "Seq Scan" not in plan and "Bitmap" not in plan


def test_the_box_is_on_every_page(alice: Tenant) -> None:
    client = console()
    for address in (reverse("admin:index"), url(ApiKey, "changelist"), of(alice.key), SEARCH):
        assert f'action="{SEARCH}"' in client.get(address).content.decode()
    assert Client().get(SEARCH, {"q": alice.organization.slug}).status_code == 302
