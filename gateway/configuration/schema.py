"""What a configuration file may hold: the nouns, their fields, and which values each field takes.

A noun's `columns` are columns of its table; `special` fields need more: a secret, the name of another row.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import yaml
from django.conf import settings
from django.core.exceptions import ValidationError

from accounts.models import OnLeave, Scope, check_time_zone, most_payload_days
from billing.models import Item, Measure, Period, Rate
from gateway.configuration.file import (
    TAG,
    WHOLE,
    At,
    ConfigurationError,
    Reader,
    boolean,
    choice,
    day,
    decimal,
    listed,
    moment,
    optional,
    seconds,
    secret,
    text,
    whole,
)
from routing.base_url import BadUrl, parse_base_url
from routing.models import (
    READABLE,
    AuthStyle,
    CapField,
    Factor,
    Forced,
    Modality,
    Protocol,
    Strategy,
    Term,
    Variant,
    Word,
)

dollars = decimal(digits=12, places=12)


def payload_days(at: At) -> int:
    """So many days as payloads may be kept at most."""
    days = whole(at)
    if days > most_payload_days():
        raise at.wrong(f"At most {most_payload_days()}, as PAYLOAD_DAYS_MOST says.")
    return days


def time_zone(at: At) -> str:
    """A name of the IANA time zone database."""
    name = text(at)
    try:
        check_time_zone(name)
    except ValidationError as error:
        raise at.wrong(str(error.message)) from None
    return name


dollars_per_million = decimal(digits=12, places=6)

Rates = dict[str, tuple[Decimal | None, Decimal | None]]  # by item: cost and charge, None: unknown
LARGEST_SIZE = 2**31 - 1  # of a prompt, in tokens: what the column holds


@dataclass(frozen=True, slots=True)
class Noun:
    """A kind of thing a file may hold.

    Its entries are a mapping by name; or, when `identity` names fields, a list, told apart by these fields.
    """

    columns: Mapping[str, Reader]
    special: Mapping[str, Reader] = field(default_factory=dict)
    inner: Mapping[str, "Noun"] = field(default_factory=dict)
    identity: Sequence[str] = ()
    names: Sequence[str] = ()  # the names an entry may have; empty: any
    more: re.Pattern[str] | None = None  # and what else it may be called
    removable: bool = False  # null in place of an entry removes it
    single: bool = False  # there is one, where others are a mapping or a list


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in the file: only the fields it has. `at` is where it lies, `places` where its fields lie."""

    at: At
    name: str
    values: Mapping[str, Any]
    places: Mapping[str, At]
    inner: Mapping[str, "Sequence[Entry]"]
    removed: bool = False

    def column_values(self, noun: Noun) -> dict[str, Any]:
        """The fields that are columns."""
        return {name: value for name, value in self.values.items() if name in noun.columns}

    def wrong(self, name: str, message: str) -> ConfigurationError:
        """The error that the field `name` is wrong, at the entry when the file does not have the field."""
        place = self.places.get(name)
        return place.wrong(message) if place else self.at.wrong(f"{name}: {message}")


def base_url(at: At) -> str:
    """A base URL in the one grammar that is dialled."""
    value = text(at)
    try:
        parse_base_url(value)
    except BadUrl as error:
        raise at.wrong(str(error)) from None
    return value


def limits(at: At) -> dict[str, int | None]:
    """Limits by measure; null removes one."""
    return {name: optional(whole)(value) for name, value in at.fields(Measure.values).items()}


def rates(at: At) -> Rates:
    """All rates of a version by item: one number for both, or `{cost: ..., charge: ...}`; null is unknown."""
    return {item: _rate(value) for item, value in at.fields(Item.values).items()}


def rates_above(at: At) -> dict[int, Rates]:
    """Rates of larger prompts, by the number of tokens that they have more than."""
    found = {}
    for size, value in at.entries().items():
        if not WHOLE.fullmatch(size) or not 0 < int(size) <= LARGEST_SIZE:
            raise value.wrong(f"expected a number of tokens from 1 to {LARGEST_SIZE}, such as 200000")
        found[int(size)] = rates(value)
    return found


def service_tiers(at: At) -> dict[str, dict[str, Any]]:
    """Rates of other classes of service, by name: for each `rates` and `rates_above`, as a version has them."""
    found = {}
    for name, value in at.entries().items():
        try:
            Rate._meta.get_field("service_tier").clean(name or "default", None)
        except ValidationError as error:
            raise value.wrong(" ".join(error.messages)) from None
        given = value.fields(("rates", "rates_above"))
        found[name] = {
            which: read(given[which])
            for which, read in (("rates", rates), ("rates_above", rates_above))
            if which in given
        }
    return found


def _rate(at: At) -> tuple[Decimal | None, Decimal | None]:
    read = optional(dollars_per_million)
    # A mapping is the two prices, unless its keys make it a reference.
    if at.is_mapping() and not {"env", "file"} & at.entries().keys():
        given = at.fields(("cost", "charge"))
        if len(given) != 2:
            raise at.wrong("expected one number, or both cost and charge (null: unknown)")
        return read(given["cost"]), read(given["charge"])
    both = read(at)
    return both, both


def fallback(at: At) -> str:
    """What may follow: true, false, the slug of a provider or a model; empty says nothing."""
    if isinstance(at.node, yaml.ScalarNode) and at.node.tag == TAG + "bool":
        return str(boolean(at)).lower()
    return text(at)


def weights(at: At) -> dict[str, Decimal | None]:
    """Weights by term; null removes one."""
    read = optional(decimal(digits=6, places=4))
    return {term: read(value) for term, value in at.fields(Term.values).items()}


POLICY = Noun(
    columns={
        "strategy": choice(("", *Strategy.values)),
        "factor": choice(("", *Factor.values)),
        "providers": optional(listed(text)),
        "only_providers": optional(listed(text)),
        "fallback": fallback,
        "max_attempts": optional(whole),
        "first_byte_timeout": optional(seconds),
        "total_timeout": optional(seconds),
        "refuses_training": boolean,
        "refuses_retention": boolean,
        "continues_streams": optional(boolean),
    },
    removable=True,
    single=True,
)
BUDGET = Noun(
    columns={"amount": dollars, "hard": boolean, "alerts": listed(whole)},
    names=Period.values,
    more=re.compile(rf"({'|'.join(Period.values)})(?: of (\S{{1,200}}))?(?: for (.{{1,512}}))?"),
    removable=True,
)
BOUNDS: Mapping[str, Reader] = {"limits": limits}


def budget_of(name: str) -> tuple[str, str, str]:
    """Period, model and end user of an entry called `month of acme/swift for ann`; empty: all."""
    assert BUDGET.more is not None
    found = BUDGET.more.fullmatch(name)
    assert found is not None  # it was read
    return found[1], found[2] or "", found[3] or ""


def budget_name(period: str, model: str, end_user: str) -> str:
    """What an entry is called, of which `budget_of` gives these again."""
    return period + (f" of {model}" if model else "") + (f" for {end_user}" if end_user else "")


KEY = Noun(
    columns={
        "scopes": listed(choice(Scope.values)),
        "allowed_endpoints": listed(text),
        "allowed_models": listed(text),
        "allowed_ips": listed(text),
        "max_request_price": optional(dollars),
        "min_output_cap": whole,
        "on_leave": choice(OnLeave.values),
        "dialect": choice(("", *settings.DIALECTS)),
        "valid_from": optional(moment),
        "expires_at": optional(moment),
    },
    special={"secret": secret, "owner": optional(text), "revoked": boolean, **BOUNDS},
    inner={"budgets": BUDGET, "policy": POLICY},
)
PROJECT = Noun(
    columns={
        "name": text,
        "active": boolean,
        "default_output_cap": optional(whole),
        "dialect": choice(settings.DIALECTS),
        "strict_params": boolean,
        "sends_unknown_params": boolean,
        "payload_days": payload_days,
    },
    special=BOUNDS,
    inner={"budgets": BUDGET, "policy": POLICY, "keys": KEY},
)
ORGANIZATION = Noun(
    columns={"name": text, "active": boolean, "time_zone": time_zone},
    special=BOUNDS,
    inner={"budgets": BUDGET, "projects": PROJECT},
)
CREDENTIAL = Noun(columns={"active": boolean, "billed_as": text}, special={"secret": secret})
PROVIDER = Noun(
    columns={
        "name": text,
        "protocol": choice(Protocol.values),
        "variant": choice(Variant.values),
        "base_url": base_url,
        "api_version": text,
        "auth_style": choice(AuthStyle.values),
        "region": text,
        "active": boolean,
        "stream_usage": boolean,
        "cap_field": choice(CapField.values),
        "connect_timeout": seconds,
        "first_byte_timeout": seconds,
        "idle_timeout": seconds,
        "total_timeout": seconds,
        "failure_threshold": whole,
        "cooldown": seconds,
        "max_event_bytes": whole,
        "trains_on_data": boolean,
        "retains_data": boolean,
        "reasoning_format": text,
    },
    inner={"credentials": CREDENTIAL},
)
VERSION = Noun(
    columns={
        "effective_from": moment,
        "marginal": boolean,
        "currency": text,
        "exchange_rate": decimal(digits=10, places=9),
        "note": text,
    },
    special={"rates": rates, "rates_above": rates_above, "service_tiers": service_tiers},
    identity=("effective_from",),
)
TARIFF = Noun(columns={"name": text}, inner={"versions": VERSION})
READS = [value for value, _ in READABLE]
OFFER = Noun(
    columns={
        "upstream_model": text,
        "priority": whole,
        "weight": whole,
        "context_length": optional(whole),
        "max_output": optional(whole),
        "input_modalities": optional(listed(choice(READS))),
        "supported_parameters": optional(listed(text)),
        "quality": whole,
        "forced": choice(("", *Forced.values)),
        "active": boolean,
    },
    special={"provider": text, "tariff": optional(text)},
    identity=("provider", "upstream_model"),
)
MODEL = Noun(
    columns={
        "name": text,
        "author": text,
        "description": text,
        "aliases": listed(text),
        "input_modalities": listed(choice(READS)),
        "output_modalities": listed(choice(Modality.values)),
        "context_length": whole,
        "max_output": whole,
        "supported_parameters": listed(text),
        "capabilities": listed(text),
        "published_on": optional(day),
        "image_token_bound": whole,
        "audio_token_bound": whole,
        "file_token_bound": whole,
        "quality": whole,
        "active": boolean,
    },
    inner={"policy": POLICY, "offers": OFFER},
)
CHOICE = Noun(columns={}, special=dict.fromkeys(Word.values, weights), single=True)
SECTIONS: Mapping[str, Noun] = {
    "organizations": ORGANIZATION,
    "providers": PROVIDER,
    "tariffs": TARIFF,
    "models": MODEL,
    "policy": POLICY,
    "choice_weights": CHOICE,
}


def read(top: At) -> dict[str, Sequence[Entry]]:
    """Every section's entries; a section the file lacks is empty. Raises `ConfigurationError`."""
    found = top.fields(tuple(SECTIONS))
    return {section: _entries(found[section], noun) if section in found else () for section, noun in SECTIONS.items()}


def _entries(at: At, noun: Noun) -> Sequence[Entry]:
    if noun.single:
        return [_entry(at, "", noun)]
    if noun.identity:
        return _told_apart([_entry(item, "", noun) for item in at.items()], noun)
    found = at.entries()
    if noun.names:
        found = at.fields([*noun.names, *(name for name in found if noun.more and noun.more.fullmatch(name))])
    return [_entry(value, name, noun) for name, value in found.items()]


def _told_apart(entries: Sequence[Entry], noun: Noun) -> Sequence[Entry]:
    seen = set()
    for entry in entries:
        for name in noun.identity:
            if name not in entry.values:
                raise entry.at.wrong(f"{name} is missing")
        identity = tuple(entry.values[name] for name in noun.identity)
        if identity in seen:
            raise entry.at.wrong(f"the same {' and '.join(noun.identity)} stand here a second time")
        seen.add(identity)
    return entries


def _entry(at: At, name: str, noun: Noun) -> Entry:
    if noun.removable and at.is_null():
        return Entry(at, name, {}, {}, {}, removed=True)
    readers = {**noun.columns, **noun.special}
    places = at.fields((*readers, *noun.inner))
    return Entry(
        at,
        name,
        values={field: readers[field](place) for field, place in places.items() if field in readers},
        places=places,
        inner={
            section: _entries(places[section], kind) if section in places else ()
            for section, kind in noun.inner.items()
        },
    )
