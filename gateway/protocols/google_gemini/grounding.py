"""What an answer rests on, and how probable its tokens were: Google's form and a chat's, both ways.

A chat counts characters, Google bytes of UTF-8.
"""

from collections.abc import Sequence
from typing import Any


def annotations(metadata: Any, text: str) -> list[dict[str, Any]]:
    """A chat's `annotations` for `groundingMetadata`; `text` is what was said, empty where that is not known."""
    if type(metadata) is not dict:
        return []
    pages = [_page(chunk) for chunk in _dicts(metadata.get("groundingChunks"))]
    raw, made, cited = text.encode("utf-8", "replace"), [], set()
    for support in _dicts(metadata.get("groundingSupports")):
        segment = support.get("segment")
        indices = support.get("groundingChunkIndices")
        if type(segment) is not dict or type(indices) is not list:
            continue
        places = {"start_index": _characters(raw, segment.get("startIndex") or 0)}
        places["end_index"] = _characters(raw, segment.get("endIndex") or 0)
        for at in indices:
            if type(at) is int and 0 <= at < len(pages) and (page := pages[at]) is not None:
                cited.add(at)
                made.append({"type": "url_citation", "url_citation": {**places, **page}})
    nowhere = {"start_index": 0, "end_index": 0}
    rest = [page for at, page in enumerate(pages) if page is not None and at not in cited]
    return made + [{"type": "url_citation", "url_citation": {**nowhere, **page}} for page in rest]


def citations(metadata: Any) -> list[dict[str, Any]]:
    """A chat's `annotations` for `citationMetadata`: what the answer repeats word for word."""
    sources = metadata.get("citations") or metadata.get("citationSources") if type(metadata) is dict else None
    made = []
    for source in _dicts(sources):
        if type(source.get("uri")) is str:
            places = {"start_index": source.get("startIndex") or 0, "end_index": source.get("endIndex") or 0}
            page = {"url": source["uri"], "title": source.get("title") or ""}
            made.append({"type": "url_citation", "url_citation": {**places, **page}})
    return made


def searches(metadata: Any) -> int:
    """How many searches of the web were made."""
    queries = metadata.get("webSearchQueries") if type(metadata) is dict else None
    return len(queries) if type(queries) is list else 0


def grounding_metadata(notes: Sequence[Any], text: str) -> dict[str, Any] | None:
    """`groundingMetadata` for a chat's `annotations`; `text` is what was said, empty where that is not known."""
    chunks: dict[str, int] = {}
    titles, supports = [], []
    for note in notes:
        cited = note.get("url_citation") if type(note) is dict else None
        url = cited.get("url") if type(cited) is dict else None
        if type(cited) is not dict or type(url) is not str:
            continue
        if url not in chunks:
            chunks[url] = len(chunks)
            titles.append(cited.get("title") or url)
        start, end = cited.get("start_index"), cited.get("end_index")
        if type(start) is int and type(end) is int and 0 <= start < end <= len(text):
            segment = {"endIndex": _bytes(text[:end]), "text": text[start:end]}
            if start:
                segment = {"startIndex": _bytes(text[:start]), **segment}
            supports.append({"segment": segment, "groundingChunkIndices": [chunks[url]]})
    if not chunks:
        return None
    made: dict[str, Any] = {
        "groundingChunks": [{"web": {"uri": url, "title": titles[at]}} for url, at in chunks.items()]
    }
    return made | {"groundingSupports": supports} if supports else made


def chat_logprobs(result: Any) -> dict[str, Any] | None:
    """A chat's `logprobs` for a `logprobsResult`."""
    if type(result) is not dict:
        return None
    tops = _dicts(result.get("topCandidates"))
    content = []
    for at, chosen in enumerate(_dicts(result.get("chosenCandidates"))):
        others = _dicts(tops[at].get("candidates")) if at < len(tops) else []
        content.append(_logprob(chosen) | {"top_logprobs": [_logprob(other) for other in others]})
    return {"content": content, "refusal": None} if content else None


def logprobs_result(logprobs: Any) -> dict[str, Any] | None:
    """A `logprobsResult` for a chat's `logprobs`."""
    tokens = _dicts(logprobs.get("content")) if type(logprobs) is dict else []
    if not tokens:
        return None
    made: dict[str, Any] = {"chosenCandidates": [_candidate(token) for token in tokens]}
    tops = [{"candidates": [_candidate(other) for other in _dicts(token.get("top_logprobs"))]} for token in tokens]
    return made | {"topCandidates": tops} if any(top["candidates"] for top in tops) else made


def _logprob(candidate: dict[str, Any]) -> dict[str, Any]:
    token = candidate.get("token")
    token = token if type(token) is str else ""
    return {"token": token, "logprob": candidate.get("logProbability"), "bytes": list(token.encode("utf-8", "replace"))}


def _candidate(token: dict[str, Any]) -> dict[str, Any]:
    return {"token": token.get("token"), "logProbability": token.get("logprob")}


def _page(chunk: dict[str, Any]) -> dict[str, str] | None:
    """Where a chunk comes from: the web, a map, a document."""
    for source in chunk.values():
        url = source.get("uri") if type(source) is dict else None
        if type(source) is dict and type(url) is str:
            return {"url": url, "title": source.get("title") or source.get("domain") or ""}
    return None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if type(entry) is dict] if type(value) is list else []


def _characters(raw: bytes, place: Any) -> int:
    return len(raw[:place].decode("utf-8", "ignore")) if type(place) is int and place > 0 else 0


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
