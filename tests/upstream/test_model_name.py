"""A provider's name for a model in its words, and ours in its place."""

import pytest

from gateway.upstream.model_name import over_model

OURS = "acme/clever"


@pytest.mark.parametrize(
    ("theirs", "said", "told"),
    [
        ("gpt-9o", "gpt-9o does not support tools.", "acme/clever does not support tools."),
        ("gpt-9o", "Unsupported value with the 'gpt-9o' model.", "Unsupported value with the 'acme/clever' model."),
        ("gpt-9o", "This is not supported by GPT-9o-2026-08-06.", "This is not supported by acme/clever."),
        ("gpt-9o", "Try models/gpt-9o:free, or gpt-9omni.", "Try acme/clever, or gpt-9omni."),
        (
            "vendor/large@1",
            "`vendor/large@1`: too long; large@1 takes 5",
            "`acme/clever`: too long; acme/clever takes 5",
        ),
        ("o9", "o9. It costs 2o9 or o90, my-o9", "acme/clever. It costs 2o9 or o90, my-o9"),
        (r"a\1.b", r"a\1.b and a\1xb", r"acme/clever and a\1xb"),
    ],
)
def test_their_name_becomes_ours(theirs: str, said: str, told: str) -> None:
    over = over_model(theirs, OURS)
    assert over is not None
    assert over(said) == told


@pytest.mark.parametrize("theirs", ["acme/clever", "clever", "other/clever", "c", ""])
def test_where_they_do_not_differ_nothing_is_changed(theirs: str) -> None:
    assert over_model(theirs, OURS) is None


def test_a_long_message_costs_little() -> None:
    """Linear: of a quadratic search this would be minutes."""
    over = over_model("gpt-9o", OURS)
    assert over is not None
    for said in ("gpt-9o-" * 100_000, "a/" * 300_000, "a.b-" * 150_000):
        assert len(over(said)) > 100_000
