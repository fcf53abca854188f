"""How pages of the console write amounts, counts, times and whose something is; all of it escaped."""

from datetime import datetime, timedelta
from decimal import Decimal

from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from accounts.exact import plain

NOTHING = "-"
JUST_NOW = timedelta(seconds=10)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
DATED = 30 * DAY  # from here on the day says more than how long ago it was


def dollars(value: Decimal | None) -> str:
    """An amount with all its digits. None is an unknown price, which is not 0."""
    if value is None:
        return _("unknown")
    return f"-${plain(-value)}" if value < 0 else f"${plain(value)}"


def rounded(value: Decimal) -> str:
    """An amount short enough to compare: cents from a dollar on, four significant digits below; thousands apart."""
    short = Decimal(f"{value:.3e}")
    if short and abs(short) < 1:
        return plain(short)
    return f"{value.quantize(Decimal('0.01')):,f}"


def short(value: Decimal) -> str:
    """An amount as `money` shows it, as text."""
    return f"{'-' if value < 0 else ''}${rounded(abs(value))}"


def money(value: Decimal | None) -> str:
    """An amount for a list or a card: rounded, with every digit in its title."""
    if value is None:
        return format_html('<span class="number" title="{}">{}</span>', _("No price is known."), dollars(value))
    return format_html('<span class="number" title="{}">{}</span>', dollars(value), short(value))


def number(value: int | float | Decimal | None) -> str:
    """A count or measure, thousands apart; a fraction as it is."""
    if value is None:
        text = NOTHING
    elif isinstance(value, Decimal):
        text = f"{Decimal(plain(value)):,f}"
    else:
        text = f"{value:,}" if isinstance(value, int) else f"{value:,g}"
    return format_html('<span class="number">{}</span>', text)


def exactly(value: datetime) -> str:
    """A time to the second, with its zone: that of the person who is shown it, by default UTC."""
    return f"{timezone.localtime(value):%Y-%m-%d %H:%M:%S %Z}"


def moment(value: datetime | None, now: datetime | None = None) -> str:
    """A time for a list or a field: how far from `now` (the present), beyond a month its day; exact in its title."""
    if value is None:
        return NOTHING
    words = _ago(value, now or timezone.now())
    return format_html('<time datetime="{}" title="{}">{}</time>', value.isoformat(), exactly(value), words)


def _ago(value: datetime, now: datetime) -> str:
    past, apart = value <= now, abs(now - value)
    if apart >= DATED:
        return f"{timezone.localtime(value):%Y-%m-%d}"
    if apart < JUST_NOW:
        return _("just now") if past else _("in a moment")
    if apart < MINUTE:
        count, words = apart // timedelta(seconds=1), ngettext("%d second", "%d seconds", apart.seconds)
    elif apart < HOUR:
        count = apart // MINUTE
        words = ngettext("%d minute", "%d minutes", count)
    elif apart < DAY:
        count = apart // HOUR
        words = ngettext("%d hour", "%d hours", count)
    else:
        count = apart // DAY
        words = ngettext("%d day", "%d days", count)
    return (_("%s ago") if past else _("in %s")) % (words % count)


def whose(organization: str, project: str = "", key: str = "") -> str:
    """One cell for whom something is of: organization / project · key, as far as it is known. Each may be a link."""
    if not organization:
        return NOTHING
    below = format_html(" / {}", project) if project else ""
    last = format_html(" · {}", key) if key else ""
    return format_html('<span class="whose">{}{}{}</span>', organization, below, last)
