"""Keys at the door: where they may stand, which ones open, and that nothing tells the others apart."""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from accounts import keys
from accounts.models import ApiKey
from billing.models import Attempt, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model, make_provider

HEADERS = ("Authorization", "x-api-key", "api-key", "x-goog-api-key")
NOW = datetime.now(UTC)


@pytest.fixture
def model(gateway: Gateway, simulated: SimulatedProvider) -> str:
    """A model that answers."""
    slug = make_model(make_provider(simulated.base_url)).slug
    synchronize(gateway)
    return slug


def header(name: str, secret: str) -> dict[str, str]:
    """The header that carries `secret` under `name`."""
    return {name: f"Bearer {secret}" if name == "Authorization" else secret}


def post(gateway: Gateway, model: str, headers: Any, query: str = "") -> httpx.Response:
    """A small chat completion with these headers."""
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
    return gateway.client.post(f"/v1/chat/completions{query}", json=body, headers=headers)


def nothing_happened(tenant: Tenant) -> bool:
    """No generation of the tenant is on the books."""
    return not Usage.objects.filter(organization=tenant.organization.id).exists()


# --- the form of a key ----------------------------------------------------------------------------------------------


def test_a_key_has_its_shape_and_is_never_made_twice() -> None:
    made = {keys.new_secret() for _ in range(20_000)}
    assert len(made) == 20_000
    assert all(keys.SHAPE.fullmatch(secret) and keys.is_well_formed(secret) for secret in made)
    assert all(len(secret) == len("sk-ml-") + 36 for secret in made)


@given(st.integers(6, 41), st.sampled_from(keys.ALPHABET))
def test_every_single_typo_is_caught(place: int, letter: str) -> None:
    secret = "sk-ml-0123456789ABCDEFGHIJKLMNOPQRST"
    secret += keys.checksum(secret)
    typo = secret[:place] + letter + secret[place + 1 :]
    assert keys.is_well_formed(typo) is (typo == secret)


def test_the_row_holds_neither_the_secret_nor_a_plain_hash_of_it(alice: Tenant) -> None:
    row = ApiKey.objects.filter(id=alice.key.id).values().get()
    assert alice.secret not in str(row)
    assert bytes(row["digest"]) == keys.digest(alice.secret, settings.KEY_PEPPERS[0])
    assert bytes(row["digest"]) != keys.digest(alice.secret, "another pepper")
    assert row["prefix"] == f"sk-ml-…{alice.secret[-4:]}"


# --- where it may stand ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HEADERS)
def test_a_key_is_taken_from_each_header(gateway: Gateway, alice: Tenant, model: str, name: str) -> None:
    assert post(gateway, model, header(name, alice.secret)).status_code == 200


@pytest.mark.parametrize("first", HEADERS)
@pytest.mark.parametrize("second", HEADERS)
def test_two_keys_that_differ_are_refused(
    gateway: Gateway, alice: Tenant, charlie: Tenant, model: str, first: str, second: str
) -> None:
    one, other = header(first, alice.secret), header(second, charlie.secret)
    response = post(gateway, model, [*one.items(), *other.items()])
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "ambiguous_api_key"
    assert nothing_happened(alice)
    assert nothing_happened(charlie)


def test_the_same_key_twice_is_one_key(gateway: Gateway, alice: Tenant, model: str) -> None:
    both = {**header("Authorization", alice.secret), **header("x-api-key", alice.secret)}
    assert post(gateway, model, both).status_code == 200


@pytest.mark.parametrize("name", ["key", "api_key", "api-key", "access_token", "x-api-key"])
def test_a_key_in_the_query_opens_nothing(gateway: Gateway, alice: Tenant, model: str, name: str) -> None:
    response = post(gateway, model, {}, f"?{name}={alice.secret}")
    assert response.status_code == 401
    assert alice.secret not in response.text
    assert nothing_happened(alice)


# --- which ones open ------------------------------------------------------------------------------------------------

DEAD: dict[str, dict[str, Any]] = {
    "revoked": {"revoked_at": NOW - timedelta(days=1)},
    "expired": {"expires_at": NOW - timedelta(seconds=1)},
    "not yet valid": {"valid_from": NOW + timedelta(days=1)},
}


def test_every_key_that_does_not_open_gets_the_same_answer(gateway: Gateway, alice: Tenant, model: str) -> None:
    refused = {name: make_key(alice.project, **fields)[1] for name, fields in DEAD.items()}
    refused["unknown"] = keys.new_secret()
    refused["mistyped"] = alice.secret[:-1] + ("a" if alice.secret[-1] != "a" else "b")
    refused["of another shape"] = "sk-proj-" + secrets.token_urlsafe(30)
    answers = {}
    for name, secret in refused.items():
        response = post(gateway, model, header("Authorization", secret))
        ours = {k: v for k, v in response.headers.items() if k not in ("x-request-id", "date")}
        answers[name] = (response.status_code, response.text, ours)
        assert secret not in response.text
        assert secret[-20:] not in gateway.log.read_text()
    assert len({str(answer) for answer in answers.values()}) == 1
    assert answers["unknown"][0] == 401
    assert '"code":"invalid_api_key"' in answers["unknown"][1]
    assert nothing_happened(alice)


@pytest.mark.parametrize("what", ["organization", "project", "owner"])
def test_a_key_dies_with_what_it_belongs_to(gateway: Gateway, alice: Tenant, model: str, what: str) -> None:
    synchronize(gateway)
    assert gateway.chat(alice.secret, model).status_code == 200
    row: Any = {"organization": alice.organization, "project": alice.project, "owner": alice.user}[what]
    setattr(row, "is_active" if what == "owner" else "active", False)
    row.save()
    # The hold asks the database itself, so not even one more call is made.
    assert gateway.chat(alice.secret, model).status_code == 401
    assert Usage.objects.filter(organization=alice.organization.id).count() == 1


def test_a_key_made_a_moment_ago_works_at_once_and_was_not_remembered_as_unknown(
    gateway: Gateway, alice: Tenant, model: str
) -> None:
    secret = keys.new_secret()
    assert post(gateway, model, header("Authorization", secret)).status_code == 401
    ApiKey.objects.create(
        project=alice.project, name="new", digest=keys.digest(secret, settings.KEY_PEPPERS[0]), prefix="p"
    )
    assert post(gateway, model, header("Authorization", secret)).status_code == 200


def test_a_deleted_key_stays_dead_under_constant_traffic(gateway: Gateway, alice: Tenant, model: str) -> None:
    key, secret = make_key(alice.project)
    synchronize(gateway)
    assert gateway.chat(secret, model).status_code == 200
    key.delete()
    assert all(gateway.chat(secret, model).status_code == 401 for _ in range(20))


def test_keys_alike_in_their_first_forty_characters_are_two(gateway: Gateway, alice: Tenant, model: str) -> None:
    body = alice.secret[:-8]
    twin = body + ("00" if alice.secret[-8:-6] != "00" else "11")
    twin += keys.checksum(twin)
    assert post(gateway, model, header("Authorization", twin)).status_code == 401


# --- what they may do -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HEADERS)
def test_a_keys_restrictions_hold_under_every_header(gateway: Gateway, alice: Tenant, model: str, name: str) -> None:
    _, no_scope = make_key(alice.project, scopes=["management"])
    _, other_endpoint = make_key(alice.project, allowed_endpoints=["models"])
    _, other_model = make_key(alice.project, allowed_models=["some/other"])
    _, elsewhere = make_key(alice.project, allowed_ips=["203.0.113.0/24"])
    found = [
        (response.status_code, response.json()["error"]["code"])
        for secret in (no_scope, other_endpoint, other_model, elsewhere)
        for response in [post(gateway, model, header(name, secret))]
    ]
    assert found == [
        (403, "missing_scope"),
        (403, "endpoint_not_allowed"),
        (404, "model_not_found"),
        (403, "address_not_allowed"),
    ]
    assert nothing_happened(alice)


@pytest.mark.parametrize("forged", ["X-Forwarded-For", "X_Forwarded_For", "X-Real-IP", "Forwarded"])
def test_an_address_the_client_wrote_itself_counts_for_nothing(
    gateway: Gateway, alice: Tenant, model: str, forged: str
) -> None:
    _, secret = make_key(alice.project, allowed_ips=["203.0.113.7"])
    response = post(gateway, model, {**header("Authorization", secret), forged: "203.0.113.7"})
    assert response.status_code == 403


@pytest.mark.parametrize("network", ["127.0.0.1", "127.0.0.0/8", "::ffff:127.0.0.1", "0.0.0.0/0"])
def test_an_address_inside_the_list_is_taken(gateway: Gateway, alice: Tenant, model: str, network: str) -> None:
    _, secret = make_key(alice.project, allowed_ips=[network] if network[0] != ":" else [network, "127.0.0.1"])
    assert post(gateway, model, header("Authorization", secret)).status_code == 200


def test_a_request_dearer_than_the_keys_highest_price_is_refused_before_it_is_dialled(
    gateway: Gateway, alice: Tenant, model: str
) -> None:
    _, secret = make_key(alice.project, max_request_price="0.001")
    refused = gateway.chat(secret, model, max_tokens=1000)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "request_too_expensive")
    assert nothing_happened(alice)
    assert gateway.chat(secret, model, max_tokens=10).status_code == 200


def test_the_model_list_is_the_keys_own(gateway: Gateway, alice: Tenant, model: str) -> None:
    _, secret = make_key(alice.project, allowed_models=[model])
    listed = gateway.client.get("/v1/models", headers=header("x-api-key", secret)).json()
    assert [entry["id"] for entry in listed["data"]] == [model]
    assert gateway.client.get(f"/v1/models/{model}", headers=header("x-api-key", secret)).json()["id"] == model
    _, other = make_key(alice.project, allowed_models=["some/other"])
    assert gateway.client.get("/v1/models", headers=header("x-api-key", other)).json()["data"] == []
    assert gateway.client.get(f"/v1/models/{model}", headers=header("x-api-key", other)).status_code == 404


# --- in the middle of a stream --------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["revoked", "expires", "organization"])
def test_an_open_stream_is_cut_within_a_second_of_its_keys_end(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, end: str
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=500&pace=50ms").slug
    key, secret = make_key(alice.project)
    synchronize(gateway)
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    with gateway.client.stream(
        "POST", "/v1/chat/completions", json=body, headers=header("Authorization", secret)
    ) as response:
        lines = response.iter_lines()
        next(lines)
        if end == "revoked":
            key.revoked_at = datetime.now(UTC)
        elif end == "expires":
            key.expires_at = datetime.now(UTC)
        key.save()
        if end == "organization":
            alice.organization.active = False
            alice.organization.save()
        ended = datetime.now(UTC)
        rest = list(lines)
    assert datetime.now(UTC) - ended < timedelta(seconds=1.5)
    assert "data: [DONE]" not in rest
    assert '"code":"invalid_api_key"' in rest[-2]
    usage = Usage.objects.get(key=key.id)
    assert (usage.status, usage.error, usage.basis) == ("cancelled", "key_revoked", "estimated")


# --- hostile headers ------------------------------------------------------------------------------------------------

ODD = [
    b"bearer", b"Bearer", b"Basic c2stbWwt", b"Bearer ' or 1=1 --", b"Bearer \xff\xfe", b"Bearer\tx", b"",
    b"Bearer \xe2\x82\xac", b"Bearer sk-ml-" + b"0" * 36, b"Bearer " + b"a" * 30_000, b"Bearer {{7*7}}",
]  # fmt: skip


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("name", [b"Authorization", b"x-api-key"])
def test_odd_credentials_are_refused_and_never_an_error(
    gateway: Gateway, model: str, name: bytes, value: bytes
) -> None:
    attempts = Attempt.objects.count()
    response = post(gateway, model, [(name, value)])
    assert response.status_code == 401
    assert Attempt.objects.count() == attempts


@given(st.lists(st.sampled_from([*range(0x21, 0x7F), *range(0x80, 0x100)]), min_size=1, max_size=80))
def test_any_bytes_as_a_key_are_401(gateway: Gateway, value: list[int]) -> None:
    response = gateway.client.get("/v1/models", headers=[(b"Authorization", b"Bearer " + bytes(value))])
    assert response.status_code == 401


def test_a_stranger_cannot_fill_the_memory_with_unknown_keys(gateway: Gateway, alice: Tenant, model: str) -> None:
    for _ in range(300):
        assert post(gateway, model, header("x-api-key", keys.new_secret())).status_code == 401
    until(lambda: post(gateway, model, header("x-api-key", alice.secret)).status_code == 200, 2)
