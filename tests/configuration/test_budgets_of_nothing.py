"""An amount of 0 is a budget, at every level, in the file as in the console; only null is none."""

from pathlib import Path

import pytest

from accounts.console import dollars
from billing.models import Budget
from gateway.configuration.export import export
from tests.configuration.desk import Desk

NOTHING = "budgets: {month: {amount: 0, hard: true}}"
LEVELS = {
    "organization": "{name: A, %s, projects: {main: {name: M, keys: {ci: {}}}}}",
    "project": "{name: A, projects: {main: {name: M, %s, keys: {ci: {}}}}}",
    "key": "{name: A, projects: {main: {name: M, keys: {ci: {%s}}}}}",
}


@pytest.mark.parametrize("level", LEVELS)
def test_it_is_kept_and_shown_as_nothing(tmp_path: Path, level: str) -> None:
    desk = Desk(tmp_path)
    text = "organizations: {NAME: %s}" % (LEVELS[level] % NOTHING)
    assert desk.lines(text)
    budget = Budget.objects.get(organization__slug=desk.slug)
    assert (dollars(budget.amount), budget.hard) == ("$0", True)
    assert desk.lines(text) == []
    assert "amount: '0'" in desk.file(export(desk.slug)).read_text()
    desk.lines(text.replace("{amount: 0, hard: true}", "null"))
    assert not Budget.objects.filter(organization__slug=desk.slug).exists()
