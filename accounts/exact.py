"""A decimal as text, exactly: for files, logs, messages and pages alike."""

from decimal import Decimal


def plain(value: Decimal | int) -> str:
    """All digits, however many; no exponent, no idle zeros and no minus before nothing: 0.15, 100, 0.00000008."""
    text = f"{Decimal(value):f}" if value else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text
