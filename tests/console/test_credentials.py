"""Providers in the console: a secret goes in, never comes out, and is bound to the address it was typed for."""

import html
import secrets
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.urls import reverse

from accounts.sealing import CannotOpen
from routing.models import Credential, Provider, validate_base_url
from routing.starter.vendors import VENDORS
from tests.console.browser import console, context_of, filled, submit

FORM = "provider_form"
ADD = reverse("admin:routing_provider_add")
ADDRESS = "https://vendor.example/v1"


def new_secret() -> str:
    """A secret as vendors make them."""
    return f"sk-vendor-{secrets.token_hex(16)}"


@pytest.fixture
def secret() -> str:
    """The secret that `provider` holds."""
    return new_secret()


@pytest.fixture
def provider(secret: str) -> Provider:
    """A provider with one credential."""
    provider = Provider.objects.create(slug=f"vendor-{secrets.token_hex(4)}", name="Vendor", base_url=ADDRESS)
    credential = Credential(provider=provider)
    credential.put(secret)
    credential.save()
    return provider


def page(provider: Provider, name: str = "change") -> str:
    """The address of a provider's page."""
    return reverse(f"admin:routing_provider_{name}", args=[provider.pk])


def change(client: Client, provider: Provider, **changes: Any) -> Any:
    """Sends the provider's form with changes, and follows to the page that comes next."""
    return client.post(page(provider), {**untouched(client, provider), **dashed(changes)}, follow=True)


def untouched(client: Client, provider: Provider) -> dict[str, Any]:
    """The provider's form as it is opened."""
    return dict(filled(client.get(page(provider)).content.decode(), FORM))


def dashed(changes: dict[str, Any]) -> dict[str, Any]:
    """Field names of rows, which Python cannot spell."""
    return {name.replace("__", "-"): value for name, value in changes.items()}


def only(provider: Provider) -> Credential:
    """The provider's one credential, as stored."""
    return Credential.objects.select_related("provider").get(provider_id=provider.pk)


def test_it_works() -> None:
    client, slug, secret = console(), f"vendor-{secrets.token_hex(4)}", new_secret()
    response = submit(
        client,
        reverse("admin:routing_provider_add"),
        FORM,
        slug=slug,
        name="Vendor",
        base_url=ADDRESS,
        credentials__TOTAL_FORMS="1",
        credentials__0__name="default",
        credentials__0__secret=secret,
        credentials__0__active="on",
    )
    assert response.status_code == 302
    provider = Provider.objects.get(slug=slug)
    credential = only(provider)
    assert (credential.secret(), credential.hint, credential.active) == (secret, secret[-4:], True)
    assert secret not in credential.sealed


def test_it_never_shows_a_secret(provider: Provider, secret: str) -> None:
    client = console()
    typed = new_secret()
    refused = change(client, provider, slug="No Slug!", credentials__0__secret=typed)
    accepted = change(client, provider, credentials__0__secret=typed)
    assert only(provider).secret() == typed
    pages = [refused, accepted, client.get(page(provider)), client.get(page(provider, "history"))]
    pages += [client.get(page(provider, "delete")), client.get(reverse("admin:routing_provider_changelist"))]
    for response in pages:
        assert response.status_code == 200
        html = response.content.decode()
        for hidden in (secret, typed):
            assert hidden[:-4] not in html
        assert only(provider).sealed not in html
    assert f"…{typed[-4:]}" in client.get(page(provider)).content.decode()
    with connection.cursor() as cursor:
        cursor.execute("select string_agg(t::text, ' ') from django_admin_log t")
        assert typed[:-4] not in cursor.fetchone()[0]


def test_an_untouched_form_keeps_the_secret(provider: Provider, secret: str) -> None:
    before = Credential.objects.values().get(provider=provider)
    assert change(console(), provider).redirect_chain
    assert Credential.objects.values().get(provider=provider) == before
    assert only(provider).secret() == secret


def test_a_changed_address_drops_the_secrets(provider: Provider) -> None:
    client = console()
    response = change(client, provider, base_url="https://evil.example/v1")
    credential = only(provider)
    assert (credential.sealed, credential.hint) == ("", "")
    assert (
        "The address changed, so stored secrets were dropped. Type the secret of: default." in response.content.decode()
    )
    assert "nothing: type it" in client.get(page(provider)).content.decode()
    change(client, provider, base_url=ADDRESS)
    assert only(provider).sealed == "", "changing back brings nothing back"


def test_a_changed_address_drops_a_secret_whose_row_is_changed_too(provider: Provider) -> None:
    change(console(), provider, base_url="https://evil.example/v1", credentials__0__name="renamed")
    credential = only(provider)
    assert (credential.name, credential.sealed, credential.hint) == ("renamed", "", "")


def test_a_secret_typed_with_a_new_address_is_for_that_address(provider: Provider) -> None:
    typed = new_secret()
    change(console(), provider, base_url="https://other.example/v1", credentials__0__secret=typed)
    credential = only(provider)
    assert (credential.provider.base_url, credential.secret()) == ("https://other.example/v1", typed)


def test_it_says_when_a_secret_belongs_to_another_address(provider: Provider) -> None:
    with connection.cursor() as cursor:
        cursor.execute("update routing_provider set base_url = 'https://evil.example' where id = %s", [provider.pk])
    with pytest.raises(CannotOpen):
        only(provider).secret()
    html = console().get(page(provider)).content.decode()
    assert "cannot be opened: type it again" in html and only(provider).hint not in html


@pytest.mark.parametrize("typed", ["two words", "line\nbreak", "clé-secrète", "nul\0", "x" * 5000, "tab\there"])
def test_it_refuses_a_secret_that_no_header_carries(typed: str, provider: Provider, secret: str) -> None:
    response = change(console(), provider, credentials__0__secret=typed, name="Renamed")
    assert response.redirect_chain == []
    assert only(provider).secret() == secret
    assert Provider.objects.get(pk=provider.pk).name == "Vendor"


def test_it_deletes_a_credential(provider: Provider) -> None:
    change(console(), provider, credentials__0__DELETE="on")
    assert not provider.credentials.exists()


def test_it_warns_of_a_credential_without_a_secret_unless_none_is_needed(provider: Provider) -> None:
    client = console()
    more = {"credentials__TOTAL_FORMS": "2", "credentials__1__name": "spare", "credentials__1__active": "on"}
    assert "Type the secret of: spare." in change(client, provider, **more).content.decode()
    assert "Type the secret" not in change(client, provider, auth_style="none").content.decode()


REFUSED = (
    "",
    "vendor.example/v1",
    "ftp://vendor.example",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "http:/\\/vendor.example",
    "https://user@vendor.example",
    "https://user:pw@vendor.example/v1",
    "https://vendor.example\\@evil.example",
    "https://vendor.example/v1?key=1",
    "https://vendor.example/v1#x",
    "https://vendor.example/%2e%2e/admin",
    "https://vendor.example/../admin",
    "https://vendor.example/./v1",
    "https://vendor.example//v1",
    "https://vendor.example /v1",
    "https://vendor.example/\u0430pi",
    "https://\u0432endor.example",
    "https://vendor\u3002example",
    "https://127.1",
    "https://0x7f.1",
    "https://0177.0.0.1",
    "https://2130706433",
    "https://256.0.0.1",
    "https://localhost.",
    "https://[::1",
    "https://[::1%25eth0]",
    "https://[:::]",
    "https://vendor.example:0",
    "https://vendor.example:65536",
    "https://-vendor.example",
    "https://" + "a." * 130 + "example",
)


def test_it_strips_what_was_pasted_but_nothing_past_the_form_does(provider: Provider, secret: str) -> None:
    assert change(console(), provider, base_url=f" {ADDRESS}\n").redirect_chain
    assert only(provider).secret() == secret
    with pytest.raises(ValidationError):
        validate_base_url(f"{ADDRESS}\n")


@pytest.mark.parametrize("address", REFUSED)
def test_it_refuses_an_address_that_can_be_read_in_two_ways(address: str) -> None:
    with pytest.raises(ValidationError):
        Provider(slug="a", name="a", base_url=address).full_clean()


def test_a_form_with_such_an_address_changes_nothing(provider: Provider, secret: str) -> None:
    client = console()
    fields = untouched(client, provider)
    for address in REFUSED:
        response = client.post(page(provider), {**fields, "base_url": address})
        assert response.status_code == 200 and context_of(response)["errors"], address
        assert Provider.objects.get(pk=provider.pk).base_url == ADDRESS
        assert only(provider).secret() == secret


@pytest.mark.parametrize(
    "address",
    [
        ADDRESS,
        "https://vendor.example",
        "http://127.0.0.1:8080/v1",
        "http://[::1]:8080/v1/",
        "https://api-1.vendor.example:8443/a/b~c/v1beta",
        "https://vendor.example/v1/...x",
    ],
)
def test_it_takes_a_plain_address(address: str) -> None:
    validate_base_url(address)


@pytest.mark.parametrize("address", ["http://127.0.0.1:11434/v1", "https://192.168.1.20/v1", "http://vendor.example"])
def test_an_address_that_is_not_dialled_is_told_when_it_is_saved(provider: Provider, address: str) -> None:
    said = html.unescape(change(console(), provider, base_url=address).content.decode())
    assert f"{address} will not be dialled: " in said
    assert "to EGRESS_ALLOW and start the gateway anew." in said
    assert Provider.objects.get(pk=provider.pk).base_url == address


def test_a_whole_endpoint_is_no_base_url(provider: Provider) -> None:
    client = console()
    fields = untouched(client, provider)
    for path in ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings"):
        for end in ("", "/"):
            response = client.post(page(provider), {**fields, "base_url": f"{ADDRESS}{path}{end}"})
            assert f"leave {path} off" in response.content.decode()
            assert Provider.objects.get(pk=provider.pk).base_url == ADDRESS
    validate_base_url("https://vendor.example/models")  # a base path that a vendor has


def test_a_well_known_vendor_is_filled_in() -> None:
    client = console()
    html = client.get(ADD).content.decode()
    assert all(f'href="?vendor={vendor.slug}"' in html for vendor in VENDORS)
    for vendor in VENDORS:
        fields = filled(client.get(ADD, {"vendor": vendor.slug}).content.decode(), "provider_form")
        assert fields["base_url"] == [vendor.base_url] and fields["slug"] == [vendor.slug]
        assert (
            fields["protocol"] == [vendor.protocol]
            and fields["cap_field"] == [vendor.cap_field]
            and fields["auth_style"] == [vendor.auth_style]
        )
        assert ("stream_usage" in fields) == vendor.stream_usage
    assert filled(client.get(ADD, {"vendor": "nobody"}).content.decode(), "provider_form")["slug"] == [""]


def test_it_says_when_a_well_known_vendor_needs_something_else() -> None:
    client, slug = console(), f"vendor-{secrets.token_hex(4)}"
    typed = {"slug": slug, "name": "V", "base_url": "https://api.openai.com/v1", "auth_style": "none"}
    response = submit(client, ADD, "provider_form", **typed)
    assert response.status_code == 302
    provider = Provider.objects.get(slug=slug)
    assert provider.cap_field == "max_tokens"
    said = [str(message) for message in get_messages(response.wsgi_request)]
    assert "openai at this address is known to need: Auth style bearer, Cap field max_completion_tokens." in said
    right = {"auth_style": "bearer", "cap_field": "max_completion_tokens"}
    response = submit(client, reverse("admin:routing_provider_change", args=[provider.pk]), "provider_form", **right)
    assert not any("is known to need" in str(message) for message in get_messages(response.wsgi_request))
    provider.delete()
