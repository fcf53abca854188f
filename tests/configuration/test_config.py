"""Configuration as a file: what it says is what there is, and what it does not name stays."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO
from math import prod
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection, models

from accounts.keys import digest, new_secret
from accounts.models import ApiKey, Organization, Project
from billing.models import Budget, Counter, Limit, Rate, Tariff, TariffVersion, Usage, rate_name
from gateway.configuration import apply
from gateway.configuration.export import export
from gateway.configuration.schema import SECTIONS
from routing.models import Credential, Model, Offer, Policy, Provider
from tests.configuration.desk import (
    IN_FORCE,
    KEY,
    PROVIDER,
    PROVIDER_SECRET,
    ROOT,
    TARIFF,
    WHOLE,
    Desk,
    coming,
    empty_everything,
    nouns,
    undone,
    whole,
)
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key, make_tenant
from tests.stage.product import Gateway, synchronize


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_what_the_readme_says_of_a_model_on_this_machine_can_be_applied(desk: Desk) -> None:
    (example,) = re.findall(r"```yaml\n(providers:\n  here:.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with undone():
        Model.objects.filter(slug="local/mine").delete()
        Provider.objects.filter(slug="here").delete()
        Tariff.objects.filter(slug="free").delete()
        assert [line.split(":")[0] for line in desk.apply(example).lines] == [
            "+ tariff free",
            "+ tariff version free from 2026-01-01T00",
            "+ provider here",
            "+ model local/mine",
            "+ offer local/mine at here as NAME".replace("NAME", desk.slug),
        ]
        assert Model.objects.get(slug="local/mine").name == "local/mine"
        assert Provider.objects.get(slug="here").name == "here"


def test_a_name_is_the_slug_until_another_is_said(desk: Desk) -> None:
    desk.apply("organizations: {NAME: {projects: {main: {}}}}")
    organization = Organization.objects.get(slug=desk.slug)
    assert (organization.name, organization.projects.get().name) == (desk.slug, "main")
    desk.apply("organizations: {NAME: {name: Acme, projects: {main: {name: Main}}}}")
    assert desk.lines("organizations: {NAME: {projects: {main: {}}}}") == []
    organization.refresh_from_db()
    assert (organization.name, organization.projects.get().name) == ("Acme", "Main")


def test_it_works(desk: Desk) -> None:
    environment = whole(desk)
    assert desk.lines(WHOLE, **environment) == [
        "+ tariff NAME/swift",
        "+ tariff version NAME/swift from 2026-01-01T00:00:00Z: input 0.123456, output 1.5 (cost 1), "
        "reasoning unknown, input (above 200000) 0.25, output (above 200000) 3 (cost 2)",
        "+ provider NAME: https://llm.example.com/v1",
        "+ credential NAME/default: secret …6789",
        "+ model NAME/swift",
        "+ offer NAME/swift at NAME as swift-1: tariff NAME/swift",
        "+ organization NAME",
        "+ project NAME/main",
        f"+ key NAME/main/ci: sk-ml-…{environment['CI_KEY'][-4:]}",
        "+ budget NAME month: $250.5 hard",
        "+ budget NAME/main day: $10 soft",
        "+ limit NAME/main requests: 600",
        "+ limit NAME/main tokens: 100000",
        "+ limit NAME/main/ci open: 4",
    ]

    organization = Organization.objects.get(slug=desk.slug)
    project = Project.objects.get(organization=organization)
    key = ApiKey.objects.get(project=project)
    assert (organization.name, project.default_output_cap) == ("Acme", 2048)
    assert bytes(key.digest) == digest(environment["CI_KEY"], settings.KEY_PEPPERS[0])
    assert (key.scopes, key.max_request_price) == (["inference", "export"], Decimal("0.05"))
    assert key.expires_at == datetime(2029, 12, 31, 22, tzinfo=UTC)
    budgets = Budget.objects.filter(organization=organization)
    assert {(row.subject, row.period, row.amount, row.hard) for row in budgets} == {
        (organization.pk, "month", Decimal("250.5"), True),
        (project.pk, "day", Decimal(10), False),
    }
    assert {(row.subject, row.measure, row.value) for row in Limit.objects.filter(organization=organization)} == {
        (project.pk, "requests", 600),
        (project.pk, "tokens", 100_000),
        (key.pk, "open", 4),
    }
    credential = Credential.objects.get(provider__slug=desk.slug)
    assert credential.secret() == PROVIDER_SECRET
    assert (credential.provider.cap_field, credential.provider.total_timeout) == ("max_completion_tokens", 12.5)
    offer = Offer.objects.get(model__slug=f"{desk.slug}/swift")
    assert offer.model.aliases == [f"{desk.slug}/fast"]
    assert (offer.upstream_model, offer.weight, offer.priority, offer.active) == ("swift-1", 3, 0, True)
    assert offer.tariff is not None
    (version,) = offer.tariff.versions.all()
    assert (version.effective_from, version.note) == (datetime(2026, 1, 1, tzinfo=UTC), "first")
    assert {(rate.item, rate.above): (rate.cost, rate.charge) for rate in version.rates.all()} == {
        ("input", 0): (Decimal("0.123456"), Decimal("0.123456")),
        ("output", 0): (Decimal(1), Decimal("1.5")),
        ("reasoning", 0): (None, None),
        ("input", 200_000): (Decimal("0.25"), Decimal("0.25")),
        ("output", 200_000): (Decimal(2), Decimal(3)),
    }


def test_a_second_time_changes_nothing(desk: Desk) -> None:
    environment = whole(desk)
    desk.apply(WHOLE, **environment)
    assert desk.lines(WHOLE, **environment) == []


def test_it_says_what_it_changed_and_leaves_the_rest_alone(desk: Desk) -> None:
    environment = whole(desk)
    desk.apply(WHOLE, **environment)
    assert desk.lines("""
        organizations:
          NAME:
            projects:
              main:
                active: false
                limits: {requests: 900, tokens: null}
                budgets: {day: null}
        models:
          NAME/swift:
            name: Very swift
            context_length: 64000
            offers:
              - {provider: NAME, upstream_model: swift-1, priority: 1}
    """) == [
        "~ model NAME/swift: name Swift -> 'Very swift', context_length 128000 -> 64000",
        "~ offer NAME/swift at NAME as swift-1: priority 0 -> 1",
        "~ project NAME/main: active true -> false",
        "- budget NAME/main day",
        "- limit NAME/main tokens",
        "~ limit NAME/main requests: value 600 -> 900",
    ]  # fmt: skip
    offer = Offer.objects.select_related("model", "tariff").get(model__slug=f"{desk.slug}/swift")
    assert (offer.priority, offer.weight, offer.tariff and offer.tariff.slug) == (1, 3, f"{desk.slug}/swift")
    assert (offer.model.name, offer.model.aliases) == ("Very swift", [f"{desk.slug}/fast"])
    limits = Limit.objects.filter(organization__slug=desk.slug)
    assert {(row.measure, row.value) for row in limits} == {("requests", 900), ("open", 4)}
    assert [row.period for row in Budget.objects.filter(organization__slug=desk.slug)] == ["month"]


def test_a_dry_run_says_the_same_and_changes_nothing(desk: Desk) -> None:
    environment = whole(desk)
    dry = apply(desk.file(WHOLE), environment, dry_run=True)
    assert not Organization.objects.filter(slug=desk.slug).exists()
    assert not Tariff.objects.filter(slug__startswith=desk.slug).exists()
    assert not Provider.objects.filter(slug=desk.slug).exists()
    assert desk.apply(WHOLE, **environment).lines == dry.lines


def test_a_budget_says_when_to_tell(desk: Desk) -> None:
    desk.apply("organizations: {NAME: {budgets: {day: {amount: 5}, month: {amount: 5, alerts: [50, 90]}}}}")
    found = Budget.objects.filter(organization__slug=desk.slug).order_by("period")
    assert [budget.alerts for budget in found] == [[80, 100], [50, 90]]
    lines = desk.lines("organizations: {NAME: {budgets: {day: {alerts: []}, month: {alerts: [50, 90]}}}}")
    assert lines == ["~ budget NAME day: alerts [80, 100] -> []"]
    assert [budget.alerts for budget in found.all()] == [[], [50, 90]]


def test_a_budget_may_be_of_a_model_or_an_end_user(desk: Desk) -> None:
    desk.apply(f"{PROVIDER}    models: {{NAME/swift: {{}}}}", URL="http://127.0.0.1:1", ONE="1", TWO="2")
    text = """
        organizations:
          NAME:
            budgets:
              month: {amount: 500}
              month of NAME/swift: {amount: 50}
              "day for *": {amount: 1, hard: false}
              day for ann of Example Ltd.: {amount: 2}
              "total of NAME/swift for *": {amount: 3}
    """
    desk.apply(text)
    found = Budget.objects.filter(organization__slug=desk.slug)
    swift = f"{desk.slug}/swift"
    assert sorted(found.values_list("period", "model", "end_user", "amount", "hard")) == [
        ("day", "", "*", Decimal(1), False),
        ("day", "", "ann of Example Ltd.", Decimal(2), True),
        ("month", "", "", Decimal(500), True),
        ("month", swift, "", Decimal(50), True),
        ("total", swift, "*", Decimal(3), True),
    ]
    assert desk.lines(text) == []
    assert desk.lines(export(desk.slug)) == []
    changed = desk.lines("organizations: {NAME: {budgets: {day for *: null, month of NAME/swift: {amount: 60}}}}")
    assert changed == ["- budget NAME day for *", "~ budget NAME month of NAME/swift: amount 50 -> 60"]
    told = desk.refused("organizations: {NAME: {budgets: {month of NAME/swif: {amount: 1}}}}")
    assert "There is no model NAME/swif." in told
    assert found.count() == 4


def test_a_new_budget_counts_from_the_start(desk: Desk) -> None:
    desk.apply("organizations: {NAME: {name: Acme, budgets: {total: {amount: 5}}}}")
    organization = Organization.objects.get(slug=desk.slug)
    counter = Counter.objects.get(subject=organization.pk)
    assert (counter.measure, counter.period, counter.used, counter.held) == ("money", "total", Decimal(0), Decimal(0))


def test_a_new_keys_secret_is_printed_once(desk: Desk) -> None:
    path = desk.file(KEY % "{}")

    def run(*arguments: str) -> str:
        out = StringIO()
        call_command("config", "apply", str(path), *arguments, stdout=out)
        return out.getvalue()

    assert re.findall("sk-ml-[0-9A-Za-z]+", run("--dry-run")) == []
    (secret,) = re.findall("sk-ml-[0-9A-Za-z]+", run())
    key = ApiKey.objects.get(project__organization__slug=desk.slug)
    assert bytes(key.digest) == digest(secret, settings.KEY_PEPPERS[0])
    again = run()
    assert again == "No difference.\n"


def test_a_key_is_not_rotated_in_place(desk: Desk) -> None:
    first, second = new_secret(), new_secret()
    desk.apply(KEY % "{secret: {env: CI}}", CI=first)
    told = desk.refused(KEY.replace("Acme", "Other") % "{secret: {env: CI}}", CI=second)
    assert "organizations.NAME.projects.main.keys.ci.secret" in told
    assert "rotated by making a new one" in told
    assert second not in told
    organization = Organization.objects.get(slug=desk.slug)
    assert organization.name == "Acme"
    key = ApiKey.objects.get(project__organization=organization)
    assert bytes(key.digest) == digest(first, settings.KEY_PEPPERS[0])


def test_a_keys_secret_must_be_well_formed_and_its_own(desk: Desk) -> None:
    secret = new_secret()
    typo = secret[:-1] + ("a" if secret[-1] != "a" else "b")
    assert "not a key's secret" in desk.refused(KEY % "{secret: {env: CI}}", CI=typo)
    taken = make_tenant("taken").secret
    assert "another key has this secret" in desk.refused(KEY % "{secret: {env: CI}}", CI=taken)
    twice = KEY % "{secret: {env: CI}}, cd: {secret: {env: CI}}"
    assert "another key of the file" in desk.refused(twice, CI=secret)
    assert not Organization.objects.filter(slug=desk.slug).exists()


def test_a_file_revokes_a_key_and_never_revives_it(desk: Desk) -> None:
    secret = new_secret()
    desk.apply(KEY % "{secret: {env: CI}}", CI=secret)
    (line,) = desk.lines(KEY % "{revoked: true}")
    assert line.startswith("~ key NAME/main/ci: revoked_at none -> ")
    assert desk.lines(KEY % "{secret: {env: CI}}", CI=secret) == []
    assert desk.lines(KEY % "{revoked: true}") == []
    assert "a revoked key stays revoked" in desk.refused(KEY % "{revoked: false}")
    key = ApiKey.objects.get(project__organization__slug=desk.slug)
    assert key.revoked_at is not None


def test_a_name_that_two_keys_have_is_refused(desk: Desk) -> None:
    tenant = make_tenant("twins")
    make_key(tenant.project, name="ci")
    make_key(tenant.project, name="ci")
    desk.slug = tenant.organization.slug
    assert "2 keys of the project have this name" in desk.refused(KEY % "{min_output_cap: 9}")
    assert {key.min_output_cap for key in tenant.project.keys.all()} == {1}


def test_a_credentials_secret_is_compared_sealed_or_not(desk: Desk) -> None:
    url = "https://llm.example.com/v1"
    desk.apply(PROVIDER, URL=url, ONE="first-secret-000001", TWO="second-secret-000002")
    before = Credential.objects.get(provider__slug=desk.slug, name="one").sealed
    assert desk.lines(PROVIDER, URL=url, ONE="first-secret-000001", TWO="second-secret-000003") == [
        "~ credential NAME/two: secret replaced"
    ]
    assert Credential.objects.get(provider__slug=desk.slug, name="one").sealed == before
    assert Credential.objects.get(provider__slug=desk.slug, name="two").secret() == "second-secret-000003"


def test_a_changed_address_takes_the_secrets_that_are_not_given_anew(desk: Desk) -> None:
    desk.apply(PROVIDER, URL="https://old.example.com", ONE="first-secret-000001", TWO="second-secret-000002")
    moved = """
        providers:
          NAME:
            base_url: https://new.example.com
            credentials: {one: {secret: {env: ONE}}}
    """
    assert desk.lines(moved, ONE="first-secret-000001") == [
        "~ provider NAME: base_url https://old.example.com -> https://new.example.com",
        "~ credential NAME/two: secret removed, since the address changed",
        "~ credential NAME/one: secret set",
    ]
    assert Credential.objects.get(provider__slug=desk.slug, name="one").secret() == "first-secret-000001"
    assert Credential.objects.get(provider__slug=desk.slug, name="two").sealed == ""


def test_it_notes_an_address_that_will_not_be_dialled(desk: Desk) -> None:
    environment = {"URL": "http://10.0.0.1:8080/v1", "ONE": "first-secret-000001", "TWO": "second-secret-000002"}
    (note,) = desk.apply(PROVIDER, **environment).notes
    assert note.replace(desk.slug, "NAME").startswith("provider NAME: http://10.0.0.1:8080/v1 will not be dialled: ")
    assert desk.apply(PROVIDER, **environment).notes == []


UNPRICED = """
    providers: {NAME: {name: P, base_url: "https://p.example/v1", auth_style: none}}
    tariffs:
      NAME/half: {versions: [{effective_from: 2026-01-01T00:00:00Z, rates: {input: 1}}]}
      NAME/later: {versions: [{effective_from: 2090-01-01T00:00:00Z, rates: {input: 1, output: 2}}]}
      NAME/whole: {versions: [{effective_from: 2026-01-01T00:00:00Z, rates: {input: 0, output: 0}}]}
    models:
      NAME/m:
        name: M
        offers:
          - {provider: NAME, upstream_model: none}
          - {provider: NAME, upstream_model: half, tariff: NAME/half}
          - {provider: NAME, upstream_model: later, tariff: NAME/later}
          - {provider: NAME, upstream_model: whole, tariff: NAME/whole}
          - {provider: NAME, upstream_model: idle, active: false}
"""


def test_it_notes_offers_without_a_price(desk: Desk) -> None:
    words = "under a hard budget its calls are refused, under none nobody knows what they cost"
    for _ in range(2):
        notes = [note.replace(desk.slug, "NAME") for note in desk.apply(UNPRICED).notes]
        assert notes == [
            f"offer NAME/m at NAME as none has no tariff: {words}",
            f"offer NAME/m at NAME as half has a tariff without a rate for output: {words}",
            f"offer NAME/m at NAME as later has no price before 2090-01-01 00:00 UTC: {words}",
        ]


def rates_by_start(slug: str) -> list[dict[str, Decimal | None]]:
    """A tariff's charges by item, version after version."""
    versions = TariffVersion.objects.filter(tariff__slug=slug).order_by("effective_from")
    return [{rate_name(rate.item, rate.above): rate.charge for rate in version.rates.all()} for version in versions]


@pytest.mark.parametrize(
    "rates",
    [
        "{input: 1.1, output: 2}",
        "{input: 1}",
        "{input: 1, output: 2, request: 0}",
        "{input: null, output: 2}",
        "{input: 1, output: 2}, rates_above: {200000: {input: 2}}",
    ],
)
def test_a_version_in_force_is_never_changed(desk: Desk, rates: str) -> None:
    desk.apply(TARIFF % IN_FORCE)
    told = desk.refused(TARIFF % IN_FORCE.replace("{input: 1, output: 2}", rates))
    assert "tariffs.NAME.versions[0]: this version is in force and is never changed" in told
    assert "add a version with a new effective_from" in told
    assert rates_by_start(desk.slug) == [{"input": Decimal(1), "output": Decimal(2)}]


def test_a_version_to_come_may_change(desk: Desk) -> None:
    desk.apply(TARIFF % IN_FORCE)
    desk.apply(TARIFF % coming("{input: 3, output: 4}"))
    (line,) = desk.lines(TARIFF % coming("{input: 3.5, request: 0.01}"))
    assert line.endswith("input 3 -> 3.5, output 4 -> none, request none -> 0.01")
    assert rates_by_start(desk.slug) == [
        {"input": Decimal(1), "output": Decimal(2)},
        {"input": Decimal("3.5"), "request": Decimal("0.01")},
    ]


def test_a_version_may_have_margins_and_rates_by_class_of_service(desk: Desk) -> None:
    desk.apply(TARIFF % IN_FORCE)
    flex = "{rates: {input: 1.5}, rates_above: {1000: {input: 2.5}}}"
    given = "{input: 3, output: 4}, marginal: true, rates_above: {1000: {input: 5}}, service_tiers: {flex: FLEX}"
    given = given.replace("FLEX", flex) + ", currency: EUR, exchange_rate: 1.084321987"
    desk.apply(TARIFF % coming(given))
    version = TariffVersion.objects.filter(tariff__slug=desk.slug).latest("effective_from")
    assert (version.marginal, version.currency, version.exchange_rate) == (True, "EUR", Decimal("1.084321987"))
    assert {(rate.item, rate.above, rate.service_tier): rate.charge for rate in version.rates.all()} == {
        ("input", 0, ""): 3,
        ("output", 0, ""): 4,
        ("input", 1000, ""): 5,
        ("input", 0, "flex"): Decimal("1.5"),
        ("input", 1000, "flex"): Decimal("2.5"),
    }
    assert desk.lines(TARIFF % coming(given)) == []
    (line,) = desk.lines(TARIFF % coming(given.replace("true", "false").replace("1.5", "1.6")))
    assert line.endswith(": marginal true -> false, input, flex 1.5 -> 1.6")
    told = desk.refused(TARIFF % coming(given.replace("1.084321987", "0")))
    assert "exchange_rate: Above 0, and 1 for USD." in told
    assert "Say how many dollars one EUR is worth." in desk.refused(
        TARIFF % coming("{input: 1, output: 2}, currency: EUR", days=9)
    )


def test_rates_of_larger_prompts_may_change_in_a_version_to_come(desk: Desk) -> None:
    desk.apply(TARIFF % IN_FORCE)
    desk.apply(TARIFF % coming("{input: 3, output: 4}, rates_above: {1000: {input: 5}, 2000: {input: 6}}"))
    same = TARIFF % coming("{input: 3, output: 4}, rates_above: {2000: {input: 6}, 1000: {input: 5}}")
    assert desk.lines(same) == []
    (line,) = desk.lines(TARIFF % coming("{input: 3, output: 4}, rates_above: {1000: {input: 5.5, output: 7}}"))
    assert line.endswith(": input (above 1000) 5 -> 5.5, input (above 2000) 6 -> none, output (above 1000) none -> 7")
    assert rates_by_start(desk.slug)[1] == {
        "input": Decimal(3),
        "output": Decimal(4),
        "input (above 1000)": Decimal("5.5"),
        "output (above 1000)": Decimal(7),
    }


def test_a_tariffs_past_is_not_rewritten(desk: Desk) -> None:
    desk.apply(TARIFF % IN_FORCE)
    told = desk.refused(TARIFF % "{effective_from: 2026-02-01T00:00:00Z, rates: {input: 9, output: 9}}")
    assert "versions[0].effective_from: the tariff is in force, and its past is not rewritten" in told
    assert rates_by_start(desk.slug) == [{"input": Decimal(1), "output": Decimal(2)}]


def test_two_at_once_make_everything_once(desk: Desk) -> None:
    environment = whole(desk)
    path = desk.file(WHOLE)

    def run(_: int) -> int:
        try:
            return len(apply(path, environment).lines)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(run, range(2))) == [0, 14]


def test_the_demo_applies(desk: Desk) -> None:
    with undone():
        empty_everything()
        secret = new_secret()
        environment = {
            "METERLINE_DEMO_KEY": secret,
            "METERLINE_SIMULATED_URL": "http://127.0.0.1:9123/v1",
            "METERLINE_SIMULATED_KEY": "simulated-secret-0123",
        }
        apply(ROOT / "deploy" / "demo.yaml", environment)
        assert apply(ROOT / "deploy" / "demo.yaml", environment).lines == []
        key = ApiKey.objects.get(digest=digest(secret, settings.KEY_PEPPERS[0]))
        assert str(key.project) == "demo/playground"
        offers = Offer.objects.filter(model__slug__startswith="demo/", active=True)
        assert {offer.model.slug for offer in offers} == {"demo/swift", "demo/deep", "demo/vision", "demo/vectors"}
        assert Rate.objects.filter(version__tariff__in=[offer.tariff_id for offer in offers]).count() == 12


def test_the_manual_names_every_field_and_every_variable() -> None:
    manual = (ROOT / "docs" / "configuration.md").read_text()
    for section, noun in nouns(SECTIONS):
        missing = [name for name in (*noun.columns, *noun.special) if f"`{name}`" not in manual]
        assert (section, missing) == (section, [])
    sources = (ROOT / "gateway" / "settings.py").read_text()
    variables = set(re.findall(r'(?:env\.\w+|role_url)\("([A-Z_]+)"', sources))
    assert len(variables) > 15
    assert {name for name in variables if f"`{name}`" not in manual} == set()


# The manual's tables of fields that have a default, in its order.
TABLES = (Organization, Project, ApiKey, Policy, Provider, Credential, Tariff, TariffVersion, Model, Offer)


def test_the_manual_names_the_defaults_there_are() -> None:
    manual = (ROOT / "docs" / "configuration.md").read_text()
    tables = [part.split("\n\n")[0] for part in manual.split("| field | type | default | meaning |\n")[1:]]
    tables.pop(TABLES.index(Policy))  # budgets and limits: each is a row of its own
    compared = 0
    for table, model in zip(tables, TABLES, strict=True):
        for row in table.splitlines()[1:]:
            names, _, told = (cell.strip() for cell in row.strip("|").split("|")[:3])
            for name in re.findall(r"`(\w+)`", names):
                if told.startswith("`") and name in {column.name for column in model._meta.fields}:
                    compared += 1
                    assert (model.__name__, name, told) == (model.__name__, name, f"`{as_written(model, name)}`")
    assert compared > 50
    sources = (ROOT / "gateway" / "settings.py").read_text()
    numbers = re.findall(r'env\.(?:int|float)\("([A-Z_]+)", default=([\d. *]+)\)', sources)
    assert len(numbers) > 20
    for name, factors in numbers:
        value = prod(map(Decimal, factors.split("*")), start=Decimal(1))
        assert f"| `{name}` | `{value.normalize():f}` |" in manual


def as_written(model: type[models.Model], name: str) -> str:
    """The default of a column as a file would say it."""
    default = model._meta.get_field(name).get_default()  # type: ignore[union-attr]
    match default:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[default]
        case list():
            return f"[{', '.join(default)}]"
        case "":
            return '""'
    return f"{default:g}" if isinstance(default, float) else str(default)


def test_a_model_on_this_machine_answers_as_the_readme_has_it(
    desk: Desk, gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    """Its file, with this machine's provider at another port; the operator's EGRESS_ALLOW names that."""
    (example,) = re.findall(r"```yaml\n(providers:\n  here:.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    renamed = {"here": f"{desk.slug}-here", "free": f"{desk.slug}-free", "local/mine": f"local/{desk.slug}"}
    for old, new in {"http://127.0.0.1:8080/v1": simulated.base_url, **renamed}.items():
        assert old in example
        example = example.replace(old, new)
    desk.apply(example)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, f"local/{desk.slug}")
    assert answer.status_code == 200
    assert Usage.objects.get(model=f"local/{desk.slug}").charge == 0
