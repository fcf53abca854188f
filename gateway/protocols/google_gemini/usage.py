"""Token counts in Google's names and in a chat's. Google's candidates leave out the thoughts, and its prompt what tools
that ran at the provider gave back; a chat's completion and prompt include them."""

from collections.abc import Mapping
from typing import Any

MEDIA = ("AUDIO", "IMAGE", "VIDEO")
# By the traffic's type: the class of service, in a chat's words.
TIERS = {
    "ON_DEMAND": "default",
    "ON_DEMAND_FLEX": "flex",
    "ON_DEMAND_PRIORITY": "priority",
    "PROVISIONED_THROUGHPUT": "scale",
}


def chat_usage(sent: Any, searches: int = 0) -> Any:
    """The `usage` of a chat for a `usageMetadata`; what is no count is handed on, to be disbelieved.

    `searches`: of the web, for this answer.
    """
    if type(sent) is not dict:
        return sent
    counts = [sent.get(name) or 0 for name in ("promptTokenCount", "toolUsePromptTokenCount")]
    counts += [sent.get(name) or 0 for name in ("candidatesTokenCount", "thoughtsTokenCount")]
    if any(type(count) is not int or count < 0 for count in counts):
        return {"prompt_tokens": -1}
    prompt, tools, candidates, thoughts = counts
    # Zeros are left out there, and of an object without the prompt's count nobody knows that it counts anything.
    read = prompt + tools or sent.get("promptTokenCount")
    made: dict[str, Any] = {"prompt_tokens": read, "completion_tokens": candidates + thoughts}
    if sent.get("totalTokenCount"):
        made["total_tokens"] = sent["totalTokenCount"]
    reading = {"cached_tokens": sent.get("cachedContentTokenCount") or 0} | _modalities(sent, "promptTokensDetails")
    if searches:
        reading["web_search"] = searches
    made["prompt_tokens_details"] = reading
    made["completion_tokens_details"] = {"reasoning_tokens": thoughts} | _modalities(sent, "candidatesTokensDetails")
    return made


def gemini_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The `usageMetadata` of a chat's `usage` as the gateway shows it; as Google's, without what is 0."""
    reading, writing = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    thoughts = min(writing.get("reasoning_tokens") or 0, completion)
    counts = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": completion - thoughts,
        "totalTokenCount": prompt + completion,
        "cachedContentTokenCount": reading.get("cached_tokens") or 0,
        "thoughtsTokenCount": thoughts,
    }
    made: dict[str, Any] = {name: count for name, count in counts.items() if count}
    for name, section, whole in (
        ("promptTokensDetails", reading, prompt),
        ("candidatesTokensDetails", writing, completion - thoughts),
    ):
        others = {kind: section.get(f"{kind.lower()}_tokens") or 0 for kind in MEDIA}
        counted = {"TEXT": whole - sum(others.values())} | others
        if whole:
            made[name] = [{"modality": kind, "tokenCount": count} for kind, count in counted.items() if count > 0]
    return made


def _modalities(sent: Mapping[str, Any], name: str) -> dict[str, int]:
    """Tokens of sound, pictures and video among those of a list by modality."""
    found: dict[str, int] = {}
    listed = sent.get(name)
    for entry in listed if type(listed) is list else ():
        kind, count = (entry.get("modality"), entry.get("tokenCount")) if type(entry) is dict else (None, None)
        if kind in MEDIA and type(count) is int and count > 0:
            found[f"{kind.lower()}_tokens"] = found.get(f"{kind.lower()}_tokens", 0) + count
    return found
