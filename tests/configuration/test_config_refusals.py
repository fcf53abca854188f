"""A wrong configuration file changes nothing, and is told where it is wrong and what is allowed there."""

from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import Organization
from billing.models import Tariff
from gateway.configuration.file import ConfigurationError, load
from gateway.configuration.schema import SECTIONS, read
from routing.models import Model, Provider
from tests.configuration.desk import KEY, PROVIDER, Desk, nouns


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


MARK = "organizations: {NAME: {name: Marked}}\n"  # What must not be there after a refusal.
SHAPES = {
    "an unknown section": (
        "keys: {}",
        "keys: unknown key; allowed are organizations, providers, tariffs, models, policy, choice_weights",
    ),
    "an unknown key": ("models: {a/b: {contxt_length: 1}}", "models.a/b.contxt_length: unknown key (did you mean"),
    "a key twice": ("models:\n  a/b: {name: A}\n  a/b: {name: B}", "line 4: models.a/b: stands here a second time"),
    "an offer twice": (
        "models: {a/b: {name: A, offers: [{provider: p, upstream_model: u}, {provider: p, upstream_model: u}]}}",
        "models.a/b.offers[1]: the same provider and upstream_model stand here a second time",
    ),
    "an offer without its provider": ("models: {a/b: {offers: [{upstream_model: u}]}}", "provider is missing"),
    "a number for text": ("models: {a/b: {name: 2024}}", "models.a/b.name: expected text"),
    "text for a number": ("models: {a/b: {max_output: '12'}}", "models.a/b.max_output: expected a whole number"),
    "a fraction": ("models: {a/b: {max_output: 1.5}}", "expected a whole number"),
    "an octal": ("models: {a/b: {max_output: 010}}", "expected a whole number"),
    "yes for true": ("models: {a/b: {active: yes}}", "models.a/b.active: expected true or false, got 'yes'"),
    "a negative number": ("models: {a/b: {max_output: -1}}", "expected a whole number"),
    "a number past the column": ("models: {a/b: {name: A, max_output: 9999999999}}", "models.a/b.max_output: "),
    "a list for a mapping": ("models: []", "models: expected a mapping, got a list"),
    "nothing for a mapping": ("models:", "models: expected a mapping, got nothing"),
    "a word outside the list": (
        "providers: {p: {protocol: smtp}}",
        "providers.p.protocol: expected one of openai_chat, openai_responses, anthropic_messages, google_gemini, "
        "got 'smtp'",
    ),
    "a bad address": ("providers: {p: {base_url: 'ftp://x'}}", "providers.p.base_url: not a base URL"),
    "a whole endpoint for an address": (
        "providers: {p: {name: P, base_url: 'https://x.example/v1/chat/completions'}}",
        "providers.p.base_url: ",
    ),
    "a whole endpoint with a slash": (
        "providers: {p: {name: P, base_url: 'https://x.example/v1/chat/completions/'}}",
        "/chat/completions",
    ),
    "an address with two slashes": (
        "providers: {p: {name: P, base_url: 'https://x.example/v1//'}}", "providers.p.base_url: ",
    ),
    "an address with a blank": (
        "providers: {p: {name: P, base_url: ' https://x.example/v1'}}", "providers.p.base_url: ",
    ),
    "an address with a password": ("providers: {p: {base_url: 'https://u:p@x/'}}", "providers.p.base_url: "),
    "no time at all": ("providers: {p: {idle_timeout: 0}}", "expected more than 0 seconds"),
    "too large a piece": (
        "providers: {p: {name: P, base_url: 'https://x.example', max_event_bytes: 67108865}}",
        "providers.p.max_event_bytes: Ensure this value is less than or equal to 67108864.",
    ),
    "too small a piece": (
        "providers: {p: {name: P, base_url: 'https://x.example', max_event_bytes: 65535}}",
        "providers.p.max_event_bytes: Ensure this value is greater than or equal to 65536.",
    ),
    "a bad slug": ("providers: {P_1: {name: P, base_url: 'https://x.example'}}", "providers.P_1: Lower-case letters"),
    "a missing field": ("providers: {p: {name: P}}", "providers.p: base_url: is needed for a new provider"),
    "an unknown provider": (
        "models: {a/b: {name: A, offers: [{provider: nowhere, upstream_model: u}]}}",
        "models.a/b.offers[0].provider: there is no provider 'nowhere'",
    ),
    "a price with seven decimals": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00Z, rates: {input: 0.1234567}}]}}",
        "tariffs.t.versions[0].rates.input: expected a decimal, 0 or more, with at most 6 decimals",
    ),
    "a price with an exponent": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00Z, rates: {input: 1e-3}}]}}",
        "rates.input: expected a decimal",
    ),
    "a negative price": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00Z, rates: {input: -1}}]}}",
        "rates.input: expected a decimal",
    ),
    "a cost without a charge": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00Z, rates: {input: {cost: 1}}}]}}",
        "rates.input: expected one number, or both cost and charge",
    ),
    "a size of prompt of nothing": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00Z, rates_above: {0: {input: 2}}}]}}",
        "rates_above.0: expected a number of tokens from 1 to 2147483647",
    ),
    "the ordinary class of service": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00Z, service_tiers: {standard: {}}}]}}",
        "service_tiers.standard: Lower-case letters, digits, '_', '.' and '-'; of the ordinary class, empty.",
    ),
    "a size of prompt with a mark": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00Z, rates_above: {200k: {input: 2}}}]}}",
        "rates_above.200k: expected a number of tokens from 1 to 2147483647",
    ),
    "a size of prompt past the column": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00Z, rates_above: {2147483648: {input: 2}}}]}}",
        "rates_above.2147483648: expected a number of tokens from 1 to 2147483647",
    ),
    "an unknown item of larger prompts": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00Z, rates_above: {1000: {inptu: 2}}}]}}",
        "rates_above.1000.inptu: unknown key (did you mean input?)",
    ),
    "an unknown item": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00Z, rates: {inptu: 1}}]}}",
        "rates.inptu: unknown key (did you mean input?)",
    ),
    "a version without rates": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00Z}]}}",
        "rates: a version without rates prices nothing",
    ),
    "a moment without a zone": (
        "tariffs: {t: {versions: [{effective_from: 2026-01-01T00:00:00, rates: {input: 1}}]}}",
        "versions[0].effective_from: expected a moment with its zone",
    ),
    "a variable that is not set": ("models: {a/b: {name: {env: NOWHERE}}}", "variable NOWHERE is not set"),
    "a file that is not there": ("models: {a/b: {name: {file: nowhere}}}", "cannot read nowhere: No such file"),
    "two references": ("models: {a/b: {name: {env: A, file: b}}}", "expected {env: NAME} or {file: PATH}"),
    "a literal secret": (
        "providers: {p: {credentials: {default: {secret: hunter2-hunter2}}}}",
        "providers.p.credentials.default.secret: a secret does not stand in the file itself",
    ),
    "an unknown owner": (
        KEY.replace("NAME", "other") % "{owner: nobody-at-all}",
        "keys.ci.owner: there is no user 'nobody-at-all'",
    ),
    "a window that never opens": (
        KEY.replace("NAME", "other")
        % "{valid_from: 2026-02-01T00:00:00Z, expires_at: 2026-01-01T00:00:00Z}",
        "keys.ci.expires_at: Must be later than the start.",
    ),
    "a model that is not there": (
        KEY.replace("NAME", "other") % "{allowed_models: [no/such-model]}",
        "keys.ci.allowed_models: There is no model no/such-model. Write its slug, like author/name",
    ),
    "an endpoint that is not there": (
        KEY.replace("NAME", "other") % "{allowed_endpoints: [chat/completions, /v1/models]}",
        "keys.ci.allowed_endpoints: There is no endpoint /v1/models. There are: chat/completions, completions, ",
    ),
    "a bad network": (KEY.replace("NAME", "other") % "{allowed_ips: [10.0.0.0/99]}", "keys.ci.allowed_ips: "),
    "no scope": (KEY.replace("NAME", "other") % "{scopes: []}", "keys.ci.scopes: This field cannot be blank."),
    "an unknown period": ("organizations: {o: {name: O, budgets: {year: {amount: 1}}}}", "year: unknown key; allowed"),
    "no percent": ("organizations: {o: {budgets: {day: {amount: 1, alerts: [0]}}}}", "budgets.day.alerts: "),
    "a percent out of reach": ("organizations: {o: {budgets: {day: {amount: 1, alerts: [1001]}}}}", "day.alerts: "),
    "too many percents": (
        "organizations: {o: {budgets: {day: {amount: 1, alerts: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}}}}",
        "budgets.day.alerts: ",
    ),
    "a budget of no number": ("organizations: {o: {budgets: {day: {amount: .nan}}}}", "amount: expected a decimal"),
    "a budget without end": ("organizations: {o: {budgets: {day: {amount: .inf}}}}", "amount: expected a decimal"),
    "a negative budget": ("organizations: {o: {budgets: {day for *: {amount: -1}}}}", "amount: expected a decimal"),
    "a budget of no model": ("organizations: {o: {budgets: {day of a b: {amount: 1}}}}", "day of a b: unknown key"),
    "a budget without an amount": ("organizations: {o: {name: O, budgets: {day: {}}}}", "amount: is needed"),
    "a tag": ("models: {a/b: {name: !!python/object/apply:os.system [id]}}", "models.a/b.name: expected text"),
    "a merge": ("models: {a/b: &x {name: A}, c/d: {<<: *x}}", "merging is not supported"),
    "a loop": ("models: {a/b: &x {offers: [*x]}}", "unknown key"),
    "two documents": ("models: {}\n---\nmodels: {}", "not YAML"),
    "no YAML": ("models: {", "not YAML"),
    "a null character": ('models: {a/b: {name: "a\\0b"}}', "a null character is not allowed"),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_wrong_file_changes_nothing_and_is_told_where(desk: Desk, shape: str) -> None:
    text, words = SHAPES[shape]
    told = desk.refused((MARK if not text.startswith("organizations") else "") + text)
    assert words in told
    assert told.startswith("meterline.yaml, line ")
    assert "hunter2" not in told
    assert not Organization.objects.filter(slug__in=[desk.slug, "o", "other"]).exists()
    assert not Model.objects.filter(slug__in=["a/b", "c/d"]).exists()
    assert not Provider.objects.filter(slug__in=["p", "P_1"]).exists()
    assert not Tariff.objects.filter(slug="t").exists()


def test_what_came_by_reference_is_not_repeated(desk: Desk) -> None:
    told = desk.refused("models: {NAME/a: {max_output: {env: SECRET}}}", SECRET="not-a-number")
    assert told.endswith(
        "models.NAME/a.max_output: expected a whole number, 0 or more, without quotes, got another value"
    )


def test_two_models_do_not_answer_to_one_name(desk: Desk) -> None:
    told = desk.refused("models: {NAME/a: {name: A}, NAME/b: {name: B, aliases: [NAME/a]}}")
    assert "already answers to one of these names" in told
    assert not Model.objects.filter(slug__startswith=desk.slug).exists()


def test_a_provider_without_auth_takes_no_secret(desk: Desk) -> None:
    desk.apply(PROVIDER, URL="https://x.example", ONE="first-secret-000001", TWO="second-secret-000002")
    assert "none sends no secret, but credential" in desk.refused("providers: {NAME: {auth_style: none}}")
    assert Provider.objects.get(slug=desk.slug).auth_style == "bearer"


def test_the_command_says_where_a_file_is_wrong(desk: Desk) -> None:
    path = desk.folder / "wrong.yaml"
    path.write_text("models: 5")
    with pytest.raises(CommandError, match=r"^wrong\.yaml, line 1: models: expected a mapping, got '5'$"):
        call_command("config", "apply", str(path))
    with pytest.raises(CommandError, match="No such file"):
        call_command("config", "apply", str(desk.folder / "absent.yaml"))


@given(st.decimals(min_value=0, max_value=Decimal(10) ** 12 - 1, places=6), st.booleans())
def test_a_price_is_read_exactly(tmp_path_factory: pytest.TempPathFactory, price: Decimal, quoted: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "price.yaml"
    text = f"{price:f}"
    path.write_text(
        f"tariffs: {{t: {{versions: [{{effective_from: 2026-01-01T00:00:00Z, "
        f"rates: {{input: {repr(text) if quoted else text}}}}}]}}}}"
    )
    (tariff,) = read(load(path, {}))["tariffs"]
    assert tariff.inner["versions"][0].values["rates"] == {"input": (price, price)}


FIELDS = sorted({name for _, noun in nouns(SECTIONS) for name in (*noun.columns, *noun.special, *noun.inner)})
SIGNS = (": ", ", ", "\n", "\n  ", "\n- ", "&a ", "*a", "<<", "!!int ", "!x ", "---")
WORDS = st.sampled_from([*FIELDS, *SECTIONS, *"[]{}~'\"", "a/b", "x", "input", "month", "env", "file", "0.1", *SIGNS])


@given(st.lists(WORDS, max_size=40).map("".join))
def test_no_text_does_worse_than_a_refusal(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.yaml"
    path.write_text(text)
    try:
        sections = read(load(path, {}))
    except ConfigurationError as error:
        assert str(error).startswith("noise.yaml")
    else:
        assert sections.keys() == SECTIONS.keys()
