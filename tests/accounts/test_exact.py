"""Decimals as text: every digit, and nothing else."""

from decimal import Decimal

import pytest

from accounts.exact import plain


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("0.000000080000"), "0.00000008"),
        (Decimal("100.00"), "100"),
        (Decimal("1E+3"), "1000"),
        (Decimal("-1.50"), "-1.5"),
        (Decimal("-0.00"), "0"),
        (Decimal("1E-12"), "0.000000000001"),
        (Decimal("123456789012345678.123456789012"), "123456789012345678.123456789012"),  # more than a context has
        (7, "7"),
        (0, "0"),
    ],
)
def test_it_is_exact(value: Decimal | int, text: str) -> None:
    assert plain(value) == text
