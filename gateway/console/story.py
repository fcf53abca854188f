"""Why a request went where it went and how it ended, in plain sentences: from its kept plan, its row and its dials."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.models import Attempt, Usage
from gateway.generation.explaining import lines
from routing.health.faults import Fault

MOST_NAMED = 3  # of those left out; the plan's table has all

# What a provider did, by how its attempt failed.
DID: dict[str, str | Promise] = {
    Fault.UNREACHABLE: gettext_lazy("could not be reached"),
    Fault.TIMEOUT: gettext_lazy("was not in time"),
    Fault.TRUNCATED: gettext_lazy("broke its answer off"),
    Fault.INVALID_RESPONSE: gettext_lazy("sent what is no answer"),
    Fault.AUTH: gettext_lazy("refused the gateway's credential"),
    Fault.RATE_LIMITED: gettext_lazy("limited the gateway's rate"),
    Fault.EXHAUSTED: gettext_lazy("said that the gateway's account has no credit"),
    Fault.OVERLOADED: gettext_lazy("said that it is overloaded"),
    Fault.SERVER_ERROR: gettext_lazy("failed"),
    Fault.NOT_FOUND: gettext_lazy("did not know the model, or the address"),
    Fault.REJECTED: gettext_lazy("rejected the request"),
    Fault.FORBIDDEN_ADDRESS: gettext_lazy("has an address that may not be dialled"),
    "not_dialled": gettext_lazy("was not dialled after all: the database did not say in time that it may be"),
}
ENDED: dict[str, str | Promise] = {
    "completed": gettext_lazy("answered"),
    "cancelled": gettext_lazy("was left, as the client had gone or its key had ended"),
    "dialling": gettext_lazy("was being asked when the gateway's process died"),
    "unknown": gettext_lazy("was being asked when the gateway's process died"),
}


def story(usage: Usage, attempts: Sequence[Attempt]) -> list[str]:
    """Sentences, in the order of what happened. `attempts` are those of `usage`, in order."""
    plan: Mapping[str, Any] = usage.plan or {}
    told = list(lines(plan)) if plan else []
    asked = plan.get("model", usage.model)
    said = [_("The request asked for %(model)s.") % {"model": asked}]
    why = {(line["provider"], line["endpoint"]): _(line["why"]) for line in told if line["order"]}
    for number, attempt in enumerate(attempts):
        facts = {
            "provider": attempt.provider,
            "why": why.get((attempt.provider, attempt.upstream_model)),
            "did": outcome(attempt),
            "status": f" (HTTP {attempt.upstream_status})" if attempt.upstream_status else "",
        }
        if number == 0 and facts["why"]:
            sentence = _("%(provider)s was asked first, %(why)s: it %(did)s%(status)s.")
        elif number == 0:
            sentence = _("%(provider)s was asked first: it %(did)s%(status)s.")
        elif (attempt.provider, attempt.upstream_model) == (
            attempts[number - 1].provider,
            attempts[number - 1].upstream_model,
        ):
            sentence = _("So %(provider)s was asked again: it %(did)s%(status)s.")
        elif facts["why"]:
            sentence = _("So %(provider)s was asked next, %(why)s: it %(did)s%(status)s.")
        else:
            sentence = _("So %(provider)s was asked next: it %(did)s%(status)s.")
        said.append(sentence % facts)
    if not attempts:
        said.append(_("Nobody was asked."))
    if usage.model != asked:
        said.append(_("So the answer is of another model: %(model)s.") % {"model": usage.model})
    out = [line for line in told if not line["order"]]
    if out:
        named = "; ".join(f"{one['provider']}: {_(one['why']).removeprefix('left out: ')}" for one in out[:MOST_NAMED])
        more = len(out) - MOST_NAMED
        left = _("Left out were %(named)s.") if more <= 0 else _("Left out were %(named)s; and %(more)s more.")
        said.append(left % {"named": named, "more": more})
    return said


def outcome(attempt: Attempt) -> str:
    """How a dial ended, in words that go on from "it"."""
    said = DID.get(attempt.fault) or ENDED.get(attempt.status) or attempt.fault or attempt.status
    return str(said)
