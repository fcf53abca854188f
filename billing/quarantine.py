"""What a provider's claim that was not believed would come to, and what somebody says to it.

Such a generation is charged by an estimate, or by the counts that were believed, and is `suspect`. A claim can be
accepted where its counts of the prompt and the completion are counts at all, and all there is to be charged; what is
said to be inside one of them counts where it fits. It is priced as re-pricing prices (`billing/repricing.py`): by the
version that priced the generation, by its organization's terms, and what was capped stays capped.
"""

from copy import copy
from decimal import Decimal
from typing import Any, NamedTuple

from django.db import connection
from django.utils.translation import gettext as _
from psycopg.types.json import Jsonb

from billing.models import Quarantined, Repricing, TariffVersion
from billing.repricing import COUNTS, Look, repriced
from billing.tokens import LARGEST, Tokens

INPUTS = ("cached", "cache_write_5m", "cache_write_1h", "audio_input", "image_input", "video_input")
NO_TOKENS = ("web_searches", "images", "seconds")
OUTPUTS = ("reasoning", "audio_output", "image_output")


class Amounts(NamedTuple):
    """Dollars: what the tenant is charged and what the provider takes."""

    charge: Decimal
    cost: Decimal


def tokens_of(row: Quarantined) -> Tokens | None:
    """What was claimed, as far as it can be; None: nothing that can be priced."""
    counts = row.claimed.get("tokens") or {}
    kept = {name: count for name, count in counts.items() if type(count) is int and 0 <= count <= LARGEST}
    prompt, completion = kept.get("prompt", 0), kept.get("completion", 0)
    if not (prompt and completion):
        return None
    found = {"prompt": prompt, "completion": completion}
    for inside, most in ((INPUTS, prompt), (OUTPUTS, completion)):
        if sum(kept.get(name, 0) for name in inside) <= most:
            found |= {name: kept[name] for name in inside if name in kept}
    return Tokens(**found)


def amounts(row: Quarantined) -> Amounts | None:
    """What the claim comes to; None: it cannot be accepted."""
    tokens = tokens_of(row)
    version = TariffVersion.objects.filter(pk=row.tariff_version or 0).first()
    counted = any(getattr(row, column) for column in NO_TOKENS)
    if tokens is None or version is None or counted:  # a claim of tokens says nothing of those
        return None
    as_claimed = copy(row)
    for name, column in COUNTS.items():
        setattr(as_claimed, column, getattr(tokens, name))
    found = repriced(as_claimed, Look(Repricing(version=version), "").prices_of(row))
    return None if found is None else Amounts(*found)


def judge(row: Quarantined, by: str, *, accept: bool) -> bool:
    """Accepts a claim or dismisses it, once; False: somebody has before, and nothing is changed.

    Raises ValueError for a claim that cannot be accepted.
    """
    found = amounts(row) if accept else None
    if accept and found is None:
        raise ValueError(_("there is nothing in it that can be charged"))
    charge, cost = found or (None, None)
    values: list[Any] = [row.pk, by, accept, Jsonb(row.claimed), charge, cost]
    with connection.cursor() as cursor:
        cursor.execute("select billing_judge_claim(%s, %s, %s, %s, %s, %s)", values)
        return bool(cursor.fetchone()[0])
