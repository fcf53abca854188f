"""What a provider said that it used, where that is not believed: kept with the generation, for an operator to judge.

Of what it sent so much is kept that a person sees what it is about, however much it was.
"""

from collections.abc import Mapping
from typing import Any

MOST_FIELDS = 40  # of an object
MOST_TEXT = 40  # characters of a value or a name
CORE = ("prompt", "completion")
INSIDE = (
    *("cached", "cache_write_5m", "cache_write_1h", "audio_input", "image_input", "video_input"),
    *("reasoning", "audio_output", "image_output"),
)
PRICED = frozenset((*CORE, *INSIDE, "total", "shown"))  # the last two are nothing of their own


def claimed(sent: Any, counts: Mapping[str, int]) -> dict[str, Any]:
    """`said`: what it sent, shortened; `tokens`: its counts by bucket, where each of them is one (`billing.tokens`).

    None where it counts what is not inside prompt and completion: to price the rest alone would lose it.
    """
    found: dict[str, Any] = {"said": _short(sent)}
    whole = all(name in PRICED for name, count in counts.items() if count)
    if whole and all(counts.get(name) for name in CORE):
        found["tokens"] = {name: counts[name] for name in (*CORE, *INSIDE) if counts.get(name)}
    return found


def _short(value: Any, levels: int = 2) -> Any:
    if type(value) is dict:
        if not levels:
            return "{...}"
        names = list(value)[:MOST_FIELDS]
        return {_text(name): _short(value[name], levels - 1) for name in names}
    if type(value) is list:
        return "[...]"
    if type(value) is int and -(10**15) < value < 10**15:
        return value
    return value if value is None or type(value) is bool else _text(value)


def _text(value: Any) -> str:
    try:
        text = str(value)
    except ValueError:  # a number of thousands of digits
        text = "a number without an end"
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."
