"""Token counts in this protocol's meaning, and in the inclusive buckets of `billing.tokens`.

`input_tokens` leave out what was read from the cache (`cache_read_input_tokens`) and written to it
(`cache_creation_input_tokens`, split by lifetime in `cache_creation`); the prompt is all of them together.
`output_tokens` include what was thought (`output_tokens_details.thinking_tokens`). A stream tells counts twice, in
`message_start` and in `message_delta`, and each is a total: the later one stands, but a 0 or null in it is a
placeholder, since some servers know the prompt only at the beginning and others only at the end.
"""

from collections.abc import Mapping
from typing import Any

_READ, _WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"
_NAMES = frozenset(
    {"input_tokens", _READ, _WRITTEN, "cache_creation", "output_tokens", "output_tokens_details", "server_tool_use"}
)
_LIVES = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")

_INNER = frozenset({*_LIVES, "thinking_tokens", "web_search_requests"})


class Counts:
    """What a provider reported over one answer. `tier`: the class of service, empty for the ordinary one."""

    __slots__ = ("_known", "tier")

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self.tier = ""

    def take(self, usage: Any) -> None:
        """One more report; what is no object says nothing."""
        if type(usage) is not dict:
            return
        if type(tier := usage.get("service_tier")) is str:
            self.tier = "" if tier == "standard" else tier
        for name in _NAMES & usage.keys():
            value = usage[name]
            known = self._known.get(name)
            if type(value) is dict and type(known) is dict:
                self._known[name] = {
                    **known,
                    **{inner: value[inner] for inner in _INNER & value.keys() if value[inner]},
                }
            elif value or name not in self._known:
                self._known[name] = value

    def chat(self) -> dict[str, Any] | None:
        """All of it as a usage object of the chat form; None before there was any.

        What is no count goes on as it came: whoever reads it tells a lie from a number.
        """
        known = self._known
        if not known:
            return None
        prompt = _sum(known.get("input_tokens"), known.get(_READ), known.get(_WRITTEN))
        lives = known.get("cache_creation")
        split = {name: lives[name] for name in _LIVES if name in lives} if type(lives) is dict else {}
        if known.get(_WRITTEN) is None and split:
            prompt = _sum(prompt, *split.values())
        output = known.get("output_tokens")
        made: dict[str, Any] = {
            "prompt_tokens": prompt or known.get("input_tokens"),  # nobody's zero is none
            "completion_tokens": output,
            "total_tokens": _sum(prompt, output),
            "prompt_tokens_details": {"cached_tokens": known.get(_READ), "cache_write_tokens": known.get(_WRITTEN)}
            | split,
        }
        if type(searches := known.get("server_tool_use")) is dict and searches.get("web_search_requests"):
            made["prompt_tokens_details"]["web_search"] = searches["web_search_requests"]
        if type(details := known.get("output_tokens_details")) is dict and details.get("thinking_tokens"):
            made["completion_tokens_details"] = {"reasoning_tokens": details["thinking_tokens"]}
        return made


def shown(usage: Mapping[str, Any]) -> dict[str, Any]:
    """A usage object as our chat answers have it (every bucket there), for a client of this protocol."""
    reading = usage.get("prompt_tokens_details") or {}
    writing = usage.get("completion_tokens_details") or {}
    cached = reading.get("cached_tokens") or 0
    short, long = (reading.get(name) or 0 for name in _LIVES)
    written = max(reading.get("cache_write_tokens") or 0, short + long)
    made: dict[str, Any] = {
        "input_tokens": max(0, (usage.get("prompt_tokens") or 0) - cached - written),
        _WRITTEN: written,
        _READ: cached,
        "cache_creation": {_LIVES[0]: written - long, _LIVES[1]: long},
        "output_tokens": usage.get("completion_tokens") or 0,
    }
    if thought := writing.get("reasoning_tokens"):
        made["output_tokens_details"] = {"thinking_tokens": thought}
    if searches := reading.get("web_search"):
        made["server_tool_use"] = {"web_search_requests": searches, "web_fetch_requests": 0}
    if usage.get("cost") is not None:
        made["cost"] = usage["cost"]
    return made


def _sum(*counts: Any) -> Any:
    """The sum of counts; the first that is none spoils it, and is what is given."""
    total = 0
    for count in counts:
        if count is None:
            continue
        if type(count) is not int or count < 0:
            return count
        total += count
    return total
