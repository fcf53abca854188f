"""`manage.py simulate_policy`: a configuration file is tried on recorded traffic, and nothing of it is kept."""

import io
import signal
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from gateway.management.commands.simulate_policy import moment
from routing.models import Policy
from routing.replay.replay import CHUNK
from tests.routing.test_replay import copies, shelf, usage
from tests.stage.cast import Tenant


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "changed.yaml"


def simulate(*words: str) -> str:
    """What the command prints."""
    out = io.StringIO()
    call_command("simulate_policy", *words, stdout=out)
    return out.getvalue()


def test_the_command_compares_and_keeps_nothing(alice: Tenant, file: Path) -> None:
    model, (one, two) = shelf()
    usage(alice, model)
    usage(alice, model, timezone.now() - timedelta(days=3))
    slug = alice.organization.slug
    order = f"{{strategy: order, providers: [{two.slug}]}}"
    file.write_text(f"organizations: {{{slug}: {{projects: {{main: {{policy: {order}}}}}}}}}")
    before = list(Policy.objects.order_by("pk").values())
    said = simulate(str(file), "--project", f"{slug}/main").splitlines()
    assert said[0] == f"+ policy project {slug}/main: strategy order, providers [{two.slug}]"
    cells = [line.split() for line in said]
    assert ["Charged", "$0.002", "$0.004", "+$0.002", "(+100.0%)"] in cells
    assert ["Answered", "by", one.slug, "100.0%", "0.0%", "-100.0", "points"] in cells
    assert ["Answered", "by", two.slug, "0.0%", "100.0%", "+100.0", "points"] in cells
    assert "1 generations, of which 1 would have gone elsewhere." in said
    assert list(Policy.objects.order_by("pk").values()) == before
    longer = simulate(str(file), "--organization", slug, "--from", "7d", "--model", model.slug)
    assert "2 generations, of which 2 would have gone elsewhere." in longer
    assert "0 generations" in simulate(str(file), "--organization", slug, "--from", "7d", "--to", "4d")


def test_the_command_replays_changed_prices_too(alice: Tenant, file: Path) -> None:
    model, (one, two) = shelf()
    usage(alice, model)
    first = f"{{provider: {two.slug}, upstream_model: two, priority: 0}}"
    second = f"{{provider: {one.slug}, upstream_model: one, priority: 1}}"
    file.write_text(f"models: {{{model.slug}: {{offers: [{first}, {second}]}}}}")
    said = simulate(str(file), "--project", f"{alice.organization.slug}/main")
    assert ["Charged", "$0.002", "$0.004", "+$0.002", "(+100.0%)"] in [line.split() for line in said.splitlines()]
    assert model.offers.get(provider=one).priority == 0


def test_the_command_says_what_is_wrong(alice: Tenant, file: Path) -> None:
    file.write_text("policy: {fallback: no/such-model}")
    with pytest.raises(
        CommandError, match=r"changed\.yaml, line 1: policy\.fallback: There is no provider and no model"
    ):
        simulate(str(file))
    file.write_text("policy: {max_attempts: 2}")
    for words, message in (
        (("--organization", "nobody"), "There is no organization 'nobody'."),
        (("--project", f"{alice.organization.slug}/none"), "There is no project"),
        (("--from", "1h", "--to", "2h"), "--from is not before --to."),
        (("--from", "yesterday"), "'yesterday' is neither like 24h or 7d nor like 2026-01-31T00:00:00Z"),
        (("--from", "2026-01-31T00:00:00"), "is neither like"),
    ):
        with pytest.raises(CommandError, match=message):
            simulate(str(file), *words)
    assert moment("2026-01-31T01:00:00+01:00").isoformat() == "2026-01-31T00:00:00+00:00"


class Terminal(io.StringIO):
    """A terminal at which somebody presses Ctrl-C when the bar shows."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if "Replaying" in text and "\r" in text and not self.getvalue():
            super().write(text)
            signal.raise_signal(signal.SIGINT)
            return len(text)
        return super().write(text)


def test_ctrl_c_prints_what_there_is_so_far(alice: Tenant, file: Path) -> None:
    model, _ = shelf()
    copies(usage(alice, model), CHUNK + 99)
    file.write_text("policy: {max_attempts: 2}")
    out, terminal, handler = io.StringIO(), Terminal(), signal.getsignal(signal.SIGINT)
    with redirect_stderr(terminal), pytest.raises(SystemExit) as ended:
        call_command("simulate_policy", str(file), "--project", f"{alice.organization.slug}/main", stdout=out)
    assert ended.value.code == 130
    assert f"Stopped after {CHUNK} of {CHUNK + 100} generations." in out.getvalue()
    assert f"{CHUNK} generations, of which 0 would have gone elsewhere." in out.getvalue()
    assert f"[{'#' * 33}" in terminal.getvalue() and f"{CHUNK}/{CHUNK + 100}" in terminal.getvalue()
    assert signal.getsignal(signal.SIGINT) is handler
    assert sys.stderr is not terminal
