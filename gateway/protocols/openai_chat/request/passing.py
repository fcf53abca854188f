"""Where client and upstream speak the same protocol: whether the client's own body goes on, and what not of it."""

from collections.abc import Callable, Iterable
from typing import Any

from gateway.protocols.openai_chat.request.reasoning import SPELLINGS
from gateway.protocols.openai_chat.request.request import ChatRequest, Fit
from gateway.protocols.sides import Asking, Spoken

NOTHING: frozenset[str] = frozenset()


def passes(asked: ChatRequest, asking: Asking, protocol: str, *, chat_first: frozenset[str] = NOTHING) -> bool:
    """Whether the client's own body can go on to an upstream of `protocol`.

    It cannot where something of it is the gateway's, or of the answer is cut here; nor where the offer does not take
    one of `chat_first`, which are easier left out of the chat form. Raises `InvalidRequest` where nothing else will do.
    """
    spoken, fit = asked.spoken, asking.fit
    if spoken is None or spoken.protocol != protocol:
        return False
    if not (fit.enforced_stops or asking.prefill or asked.file_ids):
        return bool(spoken.only_native) or fit.withheld.isdisjoint(chat_first)
    if spoken.only_native:
        raise spoken.nowhere(asked.model, spoken.only_native[0])
    return False


def not_taken(fit: Fit) -> frozenset[str]:
    """What an offer does not take, by the chat form's names. A wish that is only spelled otherwise is taken."""
    return fit.withheld.difference(SPELLINGS) if fit.changes else fit.withheld


def withheld(spoken: Spoken, fit: Fit) -> frozenset[str]:
    """The same by the paths of a client's own body."""
    return frozenset(spoken.told(name) or name for name in not_taken(fit))


def unasked(asked: ChatRequest, asking: Asking) -> tuple[str, ...]:
    """Hints of a client of another protocol that an offer of OpenAI's does not list, and might refuse."""
    spoken = asked.spoken
    return () if spoken is None else tuple(name for name in spoken.hints if name not in asking.takes)


def without(body: dict[str, Any], paths: Iterable[str], spelled: Callable[[str], str] = str) -> dict[str, Any]:
    """A body without what lies at these paths of names; `spelled` is how a path has a name of the body."""
    for path in paths:
        body = _without(body, path, spelled)
    return body


def _without(value: dict[str, Any], path: str, spelled: Callable[[str], str]) -> dict[str, Any]:
    name, _, rest = path.partition(".")
    made = {}
    for key, inner in value.items():
        if spelled(key) != name:
            made[key] = inner
        elif rest:
            made[key] = _without(inner, rest, spelled) if type(inner) is dict else inner
    return made
