"""An export is the file its configuration could have been made from, without its secrets."""

import re
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from gateway.configuration import apply
from gateway.configuration.export import export
from gateway.configuration.file import load
from gateway.configuration.schema import read
from routing.models import Credential
from tests.configuration.desk import (
    PROVIDER,
    PROVIDER_SECRET,
    TARIFF,
    WHOLE,
    Desk,
    coming,
    empty_everything,
    undone,
    whole,
)
from tests.stage.cast import make_key, make_tenant


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_an_export_is_what_it_was_made_from(desk: Desk) -> None:
    with undone():
        empty_everything()
        environment = whole(desk)
        desk.apply(WHOLE, **environment)
        desk.apply(PROVIDER.replace("NAME", "NAME-two"), URL="https://x.example", ONE="o" * 20, TWO="t" * 20)
        flex = "{rates: {output: 3}, rates_above: {9: {input: 2, output: {cost: 1, charge: 2}}}}"
        euros = "currency: EUR, exchange_rate: 1.5, marginal: true"
        margins = f"{euros}, service_tiers: {{flex: {flex}, priority: {{rates: {{input: null}}}}}}"
        desk.apply(TARIFF % coming(f"{{input: {{cost: 1, charge: 1.25}}, web_search: 0.000001}}, {margins}"))
        first = export()
        assert environment["CI_KEY"] not in first and PROVIDER_SECRET not in first

        variable = re.sub("[^A-Z0-9]", "_", f"CREDENTIAL_{desk.slug}_".upper())
        secrets_again = {
            f"{variable}DEFAULT": PROVIDER_SECRET,
            f"{variable}TWO_ONE": "o" * 20,
            f"{variable}TWO_TWO": "t" * 20,
        }
        assert desk.lines(first, **secrets_again) == []

        empty_everything()
        desk.apply(first, **secrets_again)
        assert export() == first
        assert Credential.objects.get(provider__slug=desk.slug).secret() == PROVIDER_SECRET


def test_an_export_without_its_variables_says_what_to_do(desk: Desk) -> None:
    with undone():
        empty_everything()
        desk.apply(WHOLE, **whole(desk))
        assert "the environment variable CREDENTIAL_" in desk.refused(export())


def test_an_organizations_export_holds_nobody_elses(desk: Desk) -> None:
    alice, charlie = make_tenant("alice"), make_tenant("charlie")
    out = StringIO()
    call_command("config", "export", "--organization", alice.organization.slug, stdout=out)
    path = desk.folder / "alice.yaml"
    path.write_text(out.getvalue())
    (organization,) = read(load(path, {}))["organizations"]
    assert (organization.name, [project.name for project in organization.inner["projects"]]) == (
        alice.organization.slug,
        ["main"],
    )
    assert charlie.organization.slug not in out.getvalue()
    assert "providers:" not in out.getvalue()
    with pytest.raises(CommandError, match="There is no organization 'nowhere-at-all'"):
        call_command("config", "export", "--organization", "nowhere-at-all")


def test_an_export_leaves_out_keys_that_no_name_tells_apart(desk: Desk) -> None:
    tenant = make_tenant("twins")
    make_key(tenant.project, name="same\nname")
    make_key(tenant.project, name="same\nname")
    text = export(tenant.organization.slug)
    assert f"#   {tenant.organization.slug}/main/same\\nname\n" in text
    assert desk.lines(text) == []


def test_any_name_comes_back_from_an_export(desk: Desk) -> None:
    names = ["yes", "1", "~", "<<", "a: b", "{env: X}", "# no", "é\u2028\U0001f600", "line\nbreak", "k" * 200, " "]
    tenant = make_tenant("names")
    for name in names:
        make_key(tenant.project, name=name)
    path = desk.folder / "names.yaml"
    path.write_text(export(tenant.organization.slug))
    (organization,) = read(load(path, {}))["organizations"]
    (project,) = organization.inner["projects"]
    assert sorted(key.name for key in project.inner["keys"]) == sorted([*names, tenant.key.name])
    assert apply(path, {}).lines == []
