"""GET /v1/models and its kin: what a key may use, at which price, in the shape its client knows."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.models import Rate as RateRow
from billing.pricing import Prices, Rate
from gateway.endpoints.model_lists import pricings
from gateway.endpoints.models import MOST_LISTS
from gateway.wire.strict_json import number
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import LONG_AGO, add_offer, add_version, make_model, make_provider, make_tariff

OPENAI_LISTS = ("/v1/models", "/api/v1/models")
ANTHROPIC_LISTS = ("/anthropic/v1/models", "/api/anthropic/v1/models")
GOOGLE_LISTS = ("/v1beta/models", "/api/vertex-ai/v1beta/models")
Shelf = Callable[..., Any]


@pytest.fixture
def stocked(gateway: Gateway, simulated: SimulatedProvider) -> Shelf:
    """Makes a model that can be called and waits until the gateway knows it."""

    def stock(**fields: Any) -> Any:
        model = make_model(make_provider(simulated.base_url), **fields)
        synchronize(gateway)
        return model

    return stock


def get(gateway: Gateway, path: str, secret: str, **headers: str) -> httpx.Response:
    """GETs `path` with a key and further headers."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return gateway.client.get(path, headers={"x-api-key": secret, **names})


def exact(response: httpx.Response) -> Any:
    """The body with its numbers as `Decimal`: a price that went through a float would show."""
    return json.loads(response.text, parse_float=Decimal)


def narrow(tenant: Tenant, *slugs: str) -> str:
    """A key that may use these models alone: its lists are not the other tests'."""
    return make_key(tenant.project, name="narrow", allowed_models=list(slugs))[1]


def price(value: Any, unit: str = "perMTokens") -> list[dict[str, Any]]:
    return [{"value": value, "unit": unit, "currency": "USD"}]


@pytest.mark.row("B301", "B302", "B303", "B305")
@pytest.mark.parametrize("path", OPENAI_LISTS)
def test_an_entry_says_what_a_model_is_and_can(gateway: Gateway, alice: Tenant, stocked: Shelf, path: str) -> None:
    model = stocked(
        aliases=[f"short-{alice.organization.slug}"],
        input_modalities=["text", "image", "audio", "video", "file"],
        output_modalities=["text", "audio"],
        context_length=200_000,
        max_output=32_000,
        supported_parameters=["temperature", "tools"],
        capabilities=["reasoning", "caching"],
        published_on=date(2026, 1, 31),
    )
    body = get(gateway, path, narrow(alice, model.slug)).json()
    assert body == {
        "object": "list",
        "success": True,
        "data": [
            {
                "id": model.slug,
                "object": "model",
                "created": 1769817600,
                "owned_by": "test",
                "display_name": "Model",
                "aliases": model.aliases,
                "input_modalities": ["text", "image", "audio", "video", "file"],
                "output_modalities": ["text", "audio"],
                "capabilities": {"reasoning": True, "caching": True},
                "context_length": 200_000,
                "max_output": 32_000,
                "max_completion_tokens": 32_000,
                "supported_parameters": ["temperature", "tools"],
                "supported_endpoint_types": ["openai"],
                "pricings": {"prompt": price(2), "completion": price(4)},
            }
        ],
    }


@pytest.mark.row("B303", "B304")
def test_what_is_not_known_is_null_and_never_invented(gateway: Gateway, alice: Tenant, stocked: Shelf) -> None:
    model = stocked(input_modalities=[], context_length=0, max_output=0)
    (entry,) = get(gateway, "/v1/models", narrow(alice, model.slug)).json()["data"]
    assert (entry["created"], entry["context_length"], entry["max_output"]) == (0, None, None)
    assert entry["capabilities"] == {"reasoning": False}
    assert (entry["supported_parameters"], entry["input_modalities"]) == ([], [])


@pytest.mark.row("B302", "B304")
@pytest.mark.parametrize(("dialect", "beside"), [("zenmux", {}), ("ezrouter", {"success": True})])
def test_what_stands_beside_the_list_is_the_dialects(
    gateway: Gateway, alice: Tenant, stocked: Shelf, dialect: str, beside: dict[str, Any]
) -> None:
    model = stocked()
    _, secret = make_key(alice.project, name=dialect, dialect=dialect, allowed_models=[model.slug])
    body = get(gateway, "/v1/models", secret).json()
    assert {name: value for name, value in body.items() if name not in ("object", "data")} == beside
    assert [entry["supported_endpoint_types"] for entry in body["data"]] == [["openai"]]


@pytest.mark.row("B306", "B307")
def test_each_price_is_what_the_tenant_pays_to_the_last_digit(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    tariff = make_tariff(
        input=("0.1", "0.300001"),
        output=("1", "123456.000001"),
        cached_input=("0.01", "0"),
        cache_write_5m=("1", "3.75"),
        cache_write_1h=("1", "6"),
        reasoning=("1", "100"),
        image_input=("1", "5.5"),
        audio_input=("1", "8.8"),
        audio_output=("1", "17.6"),
        video_input=("1", "9.9"),
        image_output=("1", "30"),
        image=("0", "0.04"),
        second=("0", "0.0001"),
        web_search=("0.005", "0.01"),
        request=("0", "0.000001"),
    )
    model = make_model(make_provider(simulated.base_url), tariff=tariff)
    synchronize(gateway)
    (entry,) = exact(get(gateway, "/v1/models", narrow(alice, model.slug)))["data"]
    assert entry["pricings"] == {
        "prompt": price(Decimal("0.300001")),
        "completion": price(Decimal("123456.000001")),
        "input_cache_read": price(0),
        "input_cache_write_5_min": price(Decimal("3.75")),
        "input_cache_write_1_h": price(6),
        "internal_reasoning": price(100),
        "image": price(Decimal("5.5")),
        "audio": price(Decimal("8.8")),
        "audio_output": price(Decimal("17.6")),
        "video": price(Decimal("9.9")),
        "image_output": price(30),
        "image_generation": price(Decimal("0.04"), "perCount"),
        "duration": price(Decimal("0.0001"), "perSecond"),
        "web_search": price(Decimal("0.01"), "perCount"),
        "request": price(Decimal("0.000001"), "perCount"),
    }


@pytest.mark.row("B306")
def test_an_unknown_price_is_left_out_and_a_price_of_nothing_is_not(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    tariff = make_tariff(input=("1", "2"), output=("0", "0"))
    RateRow.objects.filter(version__tariff=tariff, item="input").update(charge=None)
    provider = make_provider(simulated.base_url)
    partly = make_model(provider, tariff=tariff)
    nothing = make_model(provider, tariff=make_tariff())
    synchronize(gateway)
    listed = get(gateway, "/v1/models", narrow(alice, partly.slug, nothing.slug)).json()["data"]
    assert {entry["id"]: entry["pricings"] for entry in listed} == {
        partly.slug: {"completion": price(0)},
        nothing.slug: {},
    }


@pytest.mark.row("B307")
def test_a_price_is_the_first_offers_under_the_version_in_force(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = make_provider(simulated.base_url)
    tariff = make_tariff(input="9")
    model = make_model(provider, tariff=make_tariff(input="7"))
    model.offers.update(priority=5)
    add_offer(model, make_provider(simulated.base_url), tariff=tariff, priority=1)
    # Tried before both, if only it had a credential.
    add_offer(model, make_provider(simulated.base_url, auth_style="bearer"), tariff=make_tariff(input="1"))
    add_version(tariff, LONG_AGO + timedelta(days=1), input="3")
    add_version(tariff, datetime.now(UTC) + timedelta(days=1), input="4")
    synchronize(gateway)
    (entry,) = get(gateway, "/v1/models", narrow(alice, model.slug)).json()["data"]
    assert entry["pricings"] == {"prompt": price(3)}


@pytest.mark.row("B307")
def test_a_coming_price_is_listed_from_its_moment_on(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    tariff = make_tariff(input="1")
    model = make_model(make_provider(simulated.base_url), tariff=tariff)
    moment = datetime.now(UTC) + timedelta(seconds=3)
    add_version(tariff, moment, input="2")
    synchronize(gateway)
    secret = narrow(alice, model.slug)

    def listed() -> Any:
        (entry,) = get(gateway, "/v1/models", secret).json()["data"]
        return entry["pricings"]["prompt"]

    assert listed() == price(1)
    until(lambda: listed() == price(2), 10, pause=0.1)
    assert datetime.now(UTC) >= moment


def test_more_lists_than_are_kept_are_all_right(gateway: Gateway, alice: Tenant, stocked: Shelf) -> None:
    models = [stocked().slug for _ in range(MOST_LISTS + 2)]
    secrets = [narrow(alice, slug) for slug in models]
    for _ in range(2):
        for slug, secret in zip(models, secrets, strict=True):
            assert [entry["id"] for entry in get(gateway, "/v1/models", secret).json()["data"]] == [slug]


@given(st.decimals(min_value=0, max_value=10**12, places=6))
def test_a_number_is_the_decimal_itself(amount: Decimal) -> None:
    text = bytes(number(amount)).decode()
    assert Decimal(text) == amount
    assert "E" not in text
    assert json.loads(text, parse_float=Decimal) == amount


def test_the_provider_s_cost_is_no_price() -> None:
    assert pricings(Prices({"input": Rate(Decimal(1), None), "output": Rate(None, Decimal(2))})).keys() == {
        "completion"
    }


@pytest.mark.row("B300")
def test_a_key_sees_what_it_may_use_and_what_can_be_called(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stocked: Shelf
) -> None:
    mine, other, asleep, unreachable, idle = (stocked() for _ in range(5))
    type(asleep).objects.filter(pk=asleep.pk).update(active=False)
    unreachable.offers.get().provider.__class__.objects.filter(offers__model=unreachable).update(auth_style="bearer")
    idle.offers.update(active=False)
    synchronize(gateway)
    everything = {mine.slug, other.slug, asleep.slug, unreachable.slug, idle.slug}
    seen = [entry["id"] for entry in get(gateway, "/v1/models", alice.secret).json()["data"]]
    assert everything & set(seen) == {mine.slug, other.slug}
    assert seen == sorted(seen)
    secret = narrow(alice, mine.slug, asleep.slug, unreachable.slug, idle.slug)
    for path in OPENAI_LISTS + ANTHROPIC_LISTS:
        assert [entry["id"] for entry in get(gateway, path, secret).json()["data"]] == [mine.slug]
    for path in GOOGLE_LISTS:
        assert [entry["name"] for entry in get(gateway, path, secret).json()["models"]] == [mine.slug]


@pytest.mark.row("B300")
@pytest.mark.parametrize("path", OPENAI_LISTS + ANTHROPIC_LISTS + GOOGLE_LISTS)
def test_a_list_needs_a_key_that_may_ask_for_it(gateway: Gateway, alice: Tenant, path: str) -> None:
    assert gateway.client.get(path).status_code == 401
    _, chats = make_key(alice.project, name="chats", allowed_endpoints=["chat/completions"])
    _, files = make_key(alice.project, name="files", scopes=["files"])
    for secret, code in ((chats, "endpoint_not_allowed"), (files, "missing_scope")):
        for address in (path, f"{path}/no/such"):
            answer = get(gateway, address, secret)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)


@pytest.mark.row("B310")
@pytest.mark.parametrize(
    ("path", "headers"),
    [(path, {}) for path in ANTHROPIC_LISTS] + [(path, {"anthropic_version": "2023-06-01"}) for path in OPENAI_LISTS],
)
def test_anthropics_clients_get_its_shape(
    gateway: Gateway, alice: Tenant, stocked: Shelf, path: str, headers: dict[str, str]
) -> None:
    dated, undated = stocked(published_on=date(2026, 1, 31), context_length=1000, input_modalities=["text"]), stocked()
    body = get(gateway, path, narrow(alice, dated.slug, undated.slug), **headers).json()
    first, last = sorted((dated.slug, undated.slug))
    assert body.keys() == {"data", "has_more", "first_id", "last_id"}
    assert (body["has_more"], body["first_id"], body["last_id"]) == (False, first, last)
    entries = {entry["id"]: entry for entry in body["data"]}
    assert entries[dated.slug] == {
        "id": dated.slug,
        "type": "model",
        "created_at": "2026-01-31T00:00:00Z",
        "display_name": "Model",
        "aliases": [],
        "input_modalities": ["text"],
        "output_modalities": ["text"],
        "capabilities": {"reasoning": False},
        "context_length": 1000,
        "max_output": 4096,
        "max_completion_tokens": 4096,
        "supported_parameters": [],
        "supported_endpoint_types": ["openai"],
        "pricings": {"prompt": price(2), "completion": price(4)},
    }
    assert entries[undated.slug]["created_at"] == "1970-01-01T00:00:00Z"
    assert get(gateway, f"{path}/{dated.slug}", alice.secret, **headers).json() == entries[dated.slug]


@pytest.mark.row("B310")
def test_an_empty_list_has_no_ends(gateway: Gateway, alice: Tenant) -> None:
    body = get(gateway, "/anthropic/v1/models", narrow(alice, "no/such")).json()
    assert body == {"data": [], "has_more": False, "first_id": None, "last_id": None}


@pytest.mark.row("B311")
@pytest.mark.parametrize("path", GOOGLE_LISTS)
def test_googles_clients_get_its_shape(gateway: Gateway, alice: Tenant, stocked: Shelf, path: str) -> None:
    model = stocked(
        input_modalities=["text"], context_length=1000, capabilities=["reasoning"], supported_parameters=["seed"]
    )
    answer = gateway.client.get(path, headers={"x-goog-api-key": narrow(alice, model.slug)})
    assert answer.json() == {
        "models": [
            {
                "name": model.slug,
                "displayName": "Model",
                "description": "",
                "inputTokenLimit": 1000,
                "outputTokenLimit": 4096,
                "thinking": True,
                "inputModalities": ["text"],
                "outputModalities": ["text"],
                "supportedParameters": ["seed"],
                "pricings": {"prompt": price(2), "completion": price(4)},
            }
        ],
        "nextPageToken": None,
    }
    assert get(gateway, f"{path}/{model.slug}", alice.secret).json() == answer.json()["models"][0]


@pytest.mark.row("B312")
@pytest.mark.parametrize("path", OPENAI_LISTS + ANTHROPIC_LISTS + GOOGLE_LISTS)
def test_one_model_has_its_slug_and_its_aliases(gateway: Gateway, alice: Tenant, stocked: Shelf, path: str) -> None:
    alias = f"alias-{alice.organization.slug}{path.replace('/', '-')}"
    model = stocked(aliases=[alias])
    by_slug, by_alias = (get(gateway, f"{path}/{name}", alice.secret) for name in (model.slug, alias))
    assert by_slug.status_code == by_alias.status_code == 200
    assert by_slug.json() == by_alias.json()
    assert model.slug in (by_slug.json().get("id"), by_slug.json().get("name"))


@pytest.mark.row("B312")
def test_no_model_another_s_and_one_that_cannot_be_called_are_alike(
    gateway: Gateway, alice: Tenant, stocked: Shelf
) -> None:
    hidden, idle = stocked(), stocked()
    idle.offers.update(active=False)
    synchronize(gateway)
    secret = narrow(alice, idle.slug)
    for name in ("no/such", hidden.slug, idle.slug):
        answer = get(gateway, f"/v1/models/{name}", secret)
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert (error["code"], name in error["message"]) == ("model_not_found", True)


@pytest.mark.row("B301", "B303")
def test_openais_sdk_reads_the_list_and_one_of_it(gateway: Gateway, alice: Tenant, stocked: Shelf) -> None:
    model = stocked(published_on=date(2026, 1, 31))
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=narrow(alice, model.slug)) as client:
        (listed,) = list(client.models.list())
        assert (listed.id, listed.created, listed.object) == (model.slug, 1769817600, "model")
        assert client.models.retrieve(model.slug) == listed
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("no/such")


@pytest.mark.parametrize("path", OPENAI_LISTS[:1] + ANTHROPIC_LISTS[:1] + GOOGLE_LISTS[:1])
def test_a_client_that_has_the_list_is_not_sent_it_again(
    gateway: Gateway, alice: Tenant, stocked: Shelf, path: str
) -> None:
    model = stocked()
    secret = narrow(alice, model.slug)
    whole = get(gateway, path, secret)
    etag = whole.headers["etag"]
    assert etag.startswith('"')
    assert whole.headers["cache-control"] == "private, no-cache"
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = get(gateway, path, secret, if_none_match=known)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    for other in ('"other"', etag.strip('"'), ""):
        assert get(gateway, path, secret, if_none_match=other).content == whole.content
    model.offers.get().tariff.versions.get().rates.filter(item="input").update(charge=Decimal("2.5"))
    synchronize(gateway)
    changed = get(gateway, path, secret, if_none_match=etag)
    assert changed.status_code == 200
    assert changed.headers["etag"] != etag


def test_another_key_s_list_is_not_taken_for_one_s_own(gateway: Gateway, alice: Tenant, stocked: Shelf) -> None:
    mine, other = stocked(), stocked()
    first, second = narrow(alice, mine.slug), narrow(alice, other.slug)
    etag = get(gateway, "/v1/models", first).headers["etag"]
    answer = get(gateway, "/v1/models", second, if_none_match=etag)
    assert [entry["id"] for entry in answer.json()["data"]] == [other.slug]


def test_one_model_has_an_etag_too_and_head_has_no_body(gateway: Gateway, alice: Tenant, stocked: Shelf) -> None:
    model = stocked()
    path = f"/v1/models/{model.slug}"
    whole = get(gateway, path, alice.secret)
    assert get(gateway, path, alice.secret, if_none_match=whole.headers["etag"]).status_code == 304
    head = gateway.client.head(path, headers={"x-api-key": alice.secret})
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", whole.headers["etag"])
