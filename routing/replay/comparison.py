"""What traffic did and what it would have done under another policy, side by side. Pure.

Amounts are dollars and exact; times are milliseconds, their quantiles within 5 % (`sketches`), their means exact. A
generation whose price or time is not known on one side counts on neither, so that like is compared with like.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Self

from django.utils.translation import gettext as _

from routing.statistics.sketches import bucket, quantile

ZERO = Decimal(0)


@dataclass(slots=True)
class Times:
    """Many durations, in the space of a few."""

    count: int = 0
    total: float = 0.0
    sketch: dict[str, int] = field(default_factory=dict)

    def add(self, milliseconds: float) -> None:
        """One more."""
        place = str(bucket(milliseconds))
        self.count += 1
        self.total += milliseconds
        self.sketch[place] = self.sketch.get(place, 0) + 1

    @property
    def mean(self) -> float | None:
        """None: there are none."""
        return self.total / self.count if self.count else None

    def quantile(self, share: float) -> float | None:
        """The time below which a share (0 to 1) of them lies."""
        return quantile(self.sketch, share)


@dataclass(slots=True)
class Side:
    """What one way of routing makes of the traffic. `providers`: how many generations each answered."""

    charge: Decimal = ZERO
    cost: Decimal = ZERO
    failed: int = 0
    providers: dict[str, int] = field(default_factory=dict)
    duration: Times = field(default_factory=Times)
    first_token: Times = field(default_factory=Times)

    def share(self, provider: str) -> float:
        """Of the generations that were answered, those by `provider`: 0 to 1."""
        answered = sum(self.providers.values())
        return self.providers.get(provider, 0) / answered if answered else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one generation ended, or would have. `provider` None: it would have failed. None elsewhere: not known."""

    provider: str | None
    charge: Decimal | None
    cost: Decimal | None
    duration_ms: float | None
    ttft_ms: float | None


@dataclass(slots=True)
class Comparison:
    """`replayed` generations on two sides; `left_out` says how many were not, by why."""

    replayed: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    unpriced: int = 0
    untimed: int = 0
    moved: int = 0  # answered by another offer than before
    recorded: Side = field(default_factory=Side)
    predicted: Side = field(default_factory=Side)

    @property
    def looked_at(self) -> int:
        """All generations so far."""
        return self.replayed + sum(self.left_out.values())

    def leave_out(self, why: str) -> None:
        """One that says nothing about the policy."""
        self.left_out[why] = self.left_out.get(why, 0) + 1

    def add(self, recorded: Outcome, predicted: Outcome, *, moved: bool) -> None:
        """One generation, as it was and as it would have been."""
        self.replayed += 1
        self.moved += moved
        pairs = ((self.recorded, recorded), (self.predicted, predicted))
        for side, outcome in pairs:
            if outcome.provider is None:
                side.failed += 1
            else:
                side.providers[outcome.provider] = side.providers.get(outcome.provider, 0) + 1
        if None in (recorded.charge, recorded.cost, predicted.charge, predicted.cost):
            self.unpriced += 1
        else:
            for side, outcome in pairs:
                side.charge += outcome.charge or ZERO
                side.cost += outcome.cost or ZERO
        if predicted.provider is None:
            return
        if recorded.duration_ms is None or predicted.duration_ms is None:
            self.untimed += 1
        else:
            for side, outcome in pairs:
                side.duration.add(outcome.duration_ms or 0)
        if recorded.ttft_ms is not None and predicted.ttft_ms is not None:
            for side, outcome in pairs:
                side.first_token.add(outcome.ttft_ms or 0)

    def lines(self) -> Iterator[tuple[str, str, str, str]]:
        """The comparison as a table: what, recorded, predicted, the difference."""
        before, after = self.recorded, self.predicted
        for name in ("charge", "cost"):
            label = _("Charged") if name == "charge" else _("Providers' cost")
            old, new = getattr(before, name), getattr(after, name)
            yield label, _dollars(old), _dollars(new), _dollars_more(old, new)
        for label, attribute in ((_("Duration"), "duration"), (_("First token"), "first_token")):
            old, new = getattr(before, attribute), getattr(after, attribute)
            if not new.count:
                continue
            yield _("%(what)s, mean") % {"what": label}, *_times(old.mean, new.mean)
            yield _("%(what)s, half below") % {"what": label}, *_times(old.quantile(0.5), new.quantile(0.5))
            yield _("%(what)s, 90 %% below") % {"what": label}, *_times(old.quantile(0.9), new.quantile(0.9))
        for provider in sorted({*before.providers, *after.providers}):
            old, new = before.share(provider), after.share(provider)
            what = _("Answered by %(provider)s") % {"provider": provider}
            more = _("%(points)s points") % {"points": f"{100 * (new - old):+.1f}"}
            yield what, f"{old:.1%}", f"{new:.1%}", more
        if after.failed:
            yield _("Would have failed"), "0", f"{after.failed:,}", f"{after.failed:+,}"

    def remarks(self) -> list[str]:
        """What the table does not say."""
        found = [
            _("%(replayed)s generations, of which %(moved)s would have gone elsewhere.")
            % {"replayed": f"{self.replayed:,}", "moved": f"{self.moved:,}"}
        ]
        found += [
            _("%(count)s left out: %(why)s.") % {"count": f"{count:,}", "why": _(why)}
            for why, count in sorted(self.left_out.items())
        ]
        if self.unpriced:
            found.append(_("%(count)s of unknown price are not in the amounts.") % {"count": f"{self.unpriced:,}"})
        if self.untimed:
            found.append(_("%(count)s of unknown time are not in the durations.") % {"count": f"{self.untimed:,}"})
        return found

    def as_json(self) -> dict[str, Any]:
        """As it is kept; `from_json` reads it."""
        return {
            "replayed": self.replayed,
            "left_out": self.left_out,
            "unpriced": self.unpriced,
            "untimed": self.untimed,
            "moved": self.moved,
            "recorded": _side_json(self.recorded),
            "predicted": _side_json(self.predicted),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """What `as_json` gave."""
        return cls(**{**kept, **{name: _side(kept[name]) for name in ("recorded", "predicted")}})


def _side_json(side: Side) -> dict[str, Any]:
    return {
        "charge": f"{side.charge:f}",
        "cost": f"{side.cost:f}",
        "failed": side.failed,
        "providers": side.providers,
        **{
            name: {"count": times.count, "total": times.total, "sketch": times.sketch}
            for name, times in (("duration", side.duration), ("first_token", side.first_token))
        },
    }


def _side(kept: Mapping[str, Any]) -> Side:
    return Side(
        Decimal(kept["charge"]),
        Decimal(kept["cost"]),
        kept["failed"],
        kept["providers"],
        Times(**kept["duration"]),
        Times(**kept["first_token"]),
    )


def _dollars(amount: Decimal) -> str:
    return f"${amount.normalize():f}" if amount else "$0"


def _dollars_more(old: Decimal, new: Decimal) -> str:
    more = new - old
    share = f" ({more / old:+.1%})" if old else ""
    return f"{'-' if more < 0 else '+'}{_dollars(abs(more))}{share}"


def _times(old: float | None, new: float | None) -> tuple[str, str, str]:
    assert old is not None and new is not None  # both sides have as many
    share = f" ({new / old - 1:+.1%})" if old else ""
    return f"{old / 1000:.3f} s", f"{new / 1000:.3f} s", f"{(new - old) / 1000:+.3f} s{share}"
