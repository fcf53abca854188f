"""`manage.py export_usage`: a file, its manifest, and going on after a stop."""

import csv
import fcntl
import hashlib
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from billing.models import Usage
from tests.console.browser import make_usage
from tests.stage.cast import Tenant

JUNE = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def june(alice: Tenant, charlie: Tenant) -> list[Usage]:
    """What Alice has in June, oldest first; beside it there is what Charlie has, and May and July."""
    make_usage(charlie, at=JUNE)
    for at in (JUNE - timedelta(milliseconds=1), JUNE + timedelta(days=30)):
        make_usage(alice, at=at)
    charges = [Decimal("0.000000000001"), None, Decimal("123456.000000000002")]
    days = [timedelta(0), timedelta(days=10), timedelta(days=30, milliseconds=-1)]
    return [
        make_usage(alice, at=JUNE + day, charge=charge, end_user='x\r\n"' + "a" * 32 + '","2026')
        for day, charge in zip(days, charges, strict=True)
    ]


def export(file: Path, tenant: Tenant, first: str = "2026-06-01", last: str = "2026-06-30", *options: str) -> None:
    organization = f"--organization={tenant.organization.slug}"
    call_command("export_usage", str(file), f"--from={first}", f"--to={last}", organization, *options)


def part_of(file: Path, tenant: Tenant, layout: str = "") -> Path:
    return file.with_name(f"{file.name}.2026-06-01.2026-06-30.{tenant.organization.slug}{layout}.part")


def ids(file: Path) -> list[str]:
    with file.open(newline="", encoding="utf-8") as lines:
        return [row["id"] for row in csv.DictReader(lines, strict=True)]


def test_a_month_and_what_is_in_it(june: list[Usage], alice: Tenant, tmp_path: Path) -> None:
    file = tmp_path / "june.csv"
    export(file, alice)
    assert ids(file) == [usage.pk.hex for usage in june]
    told: dict[str, Any] = json.loads((tmp_path / "june.csv.json").read_text())
    assert told == {
        "layout": "generations",
        "format": "csv",
        "rows": 3,
        "unpriced": 1,
        "charge": "123456.000000000003",
        "provider_cost": "0.003600000000",
        "overrun": "0.000000000000",
        "prompt_tokens": "3000",
        "completion_tokens": "1500",
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "from": "2026-06-01",
        "to": "2026-06-30",
        "organization": alice.organization.slug,
    }
    assert file.stat().st_mode & 0o077 == 0
    assert {path.name for path in tmp_path.iterdir()} == {"june.csv", "june.csv.json"}


def test_it_goes_on_wherever_it_was_stopped(june: list[Usage], alice: Tenant, tmp_path: Path) -> None:
    export(tmp_path / "whole.csv", alice)
    whole = (tmp_path / "whole.csv").read_bytes()
    cuts = {0, 10, len(whole) - 1, len(whole), *range(400, len(whole), 97)}
    for cut in cuts:
        file = tmp_path / f"cut-{cut}.csv"
        part_of(file, alice).write_bytes(whole[:cut])
        export(file, alice)
        assert file.read_bytes() == whole, cut


def test_a_focus_file_goes_on_wherever_it_was_stopped(june: list[Usage], alice: Tenant, tmp_path: Path) -> None:
    """Never within a generation, whose rows come together."""
    asked = ("2026-06-01", "2026-06-30", "--layout=focus-1.2")
    export(tmp_path / "whole.csv", alice, *asked)
    whole = (tmp_path / "whole.csv").read_bytes()
    assert whole.count(b"\r\n") == 1 + 2 * 3
    for cut in {0, 10, len(whole) - 1, len(whole), *range(900, len(whole), 97)}:
        file = tmp_path / f"cut-{cut}.csv"
        part_of(file, alice, ".focus-1.2").write_bytes(whole[:cut])
        export(file, alice, *asked)
        assert file.read_bytes() == whole, cut


@pytest.mark.parametrize("format", ["csv", "xlsx", "parquet"])
def test_a_manifest_of_each_format_has_the_same_sums(
    june: list[Usage], alice: Tenant, tmp_path: Path, format: str
) -> None:
    whole = {"from": "2026-06-01", "to": "2026-06-30", "organization": alice.organization.slug, "format": format}
    wanted: dict[str, dict[str, Any]] = {
        "generations": {
            "rows": 3,
            "unpriced": 1,
            "charge": "123456.000000000003",
            "provider_cost": "0.003600000000",
            "overrun": "0.000000000000",
            "prompt_tokens": "3000",
            "completion_tokens": "1500",
        },
        "focus-1.4": {
            "rows": 6,
            "unpriced": 0,
            "BilledCost": "123456.000000000003",
            "EffectiveCost": "123456.000000000003",
            "ListCost": "0.003960000000",
            "ContractedCost": "0.003960000000",
        },
    }
    for layout, sums in wanted.items():
        file = tmp_path / f"{layout}.{format}"
        part_of(file, alice, "" if layout == "generations" else f".{layout}").write_bytes(b"rubbish")
        export(file, alice, "2026-06-01", "2026-06-30", f"--layout={layout}", f"--format={format}")
        told = json.loads(file.with_name(f"{file.name}.json").read_text())
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert told == {**whole, **sums, "layout": layout, "sha256": digest}


def test_it_never_goes_on_with_what_somebody_else_asked_for(
    june: list[Usage], alice: Tenant, charlie: Tenant, tmp_path: Path
) -> None:
    export(tmp_path / "whole.csv", alice)
    file = tmp_path / "june.csv"
    part_of(file, alice).write_bytes((tmp_path / "whole.csv").read_bytes()[:-10])
    export(file, charlie)
    assert len(ids(file)) == 1 and not set(ids(file)) & {usage.pk.hex for usage in june}


def test_two_at_once_do_not_write_one_file(june: list[Usage], alice: Tenant, tmp_path: Path) -> None:
    file = tmp_path / "june.csv"
    with part_of(file, alice).open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(CommandError, match="Another export writes"):
            export(file, alice)
        assert not file.exists() and part_of(file, alice).read_bytes() == b""
    export(file, alice)
    assert len(ids(file)) == 3


def test_an_organization_called_all_is_not_everyone(june: list[Usage], alice: Tenant, tmp_path: Path) -> None:
    alice.organization.slug = "all"
    alice.organization.save()
    file = tmp_path / "june.csv"
    with part_of(file, alice).open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        call_command("export_usage", str(file), "--from=2026-06-01", "--to=2026-06-30")
    assert {usage.pk.hex for usage in june} < set(ids(file))
    assert part_of(file, alice).read_bytes() == b""


def test_what_it_refuses_leaves_nothing(june: list[Usage], alice: Tenant, charlie: Tenant, tmp_path: Path) -> None:
    today = datetime.now(UTC).date()
    for first, last in (("2026-06-02", "2026-06-01"), ("2026-06-01", f"{today}")):
        with pytest.raises(CommandError):
            export(tmp_path / "a.csv", alice, first, last)
    with pytest.raises(CommandError):
        call_command(
            "export_usage", str(tmp_path / "a.csv"), "--from=2026-06-01", "--to=2026-06-02", "--organization=nobody"
        )
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(CommandError):
        export(tmp_path / "a.csv", alice)
    assert (tmp_path / "a.csv").read_text() == "mine"
