"""The pages whose changes may be drafted: price versions, limits, budgets and policies."""

from typing import Any

from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from accounts.exact import plain
from billing.admin import BudgetPage, LimitPage
from billing.console.tariffs import TariffVersionPage, in_force
from billing.models import TariffVersion, rate_name
from billing.pricing import Rate, compiled
from gateway.changes import effects
from gateway.changes.models import Change, ChangeSet, Kind, Verb
from gateway.console.changing.drafts import CannotApply, Data, Drafted, as_data, as_sent
from routing.console.policies import PolicyPage

OPEN = (ChangeSet.State.DRAFT, ChangeSet.State.APPROVED)
DATE, TIME = "effective_from_0", "effective_from_1"


class DraftedLimitPage(Drafted, LimitPage):
    """How fast a subject may go."""

    kind = Kind.LIMIT

    def effect_of(self, row: Any, formsets: list[Any]) -> dict[str, Any]:
        """Of the limit alone."""
        return effects.of_limit(row)


class DraftedBudgetPage(Drafted, BudgetPage):
    """How much may be spent."""

    kind = Kind.BUDGET

    def effect_of(self, row: Any, formsets: list[Any]) -> dict[str, Any]:
        """Of the budget alone."""
        return effects.of_budget(row)


class DraftedPolicyPage(Drafted, PolicyPage):
    """What is decided for the requests of a subject."""

    kind = Kind.POLICY

    def effect_of(self, row: Any, formsets: list[Any]) -> dict[str, Any]:
        """By a replay."""
        return effects.of_policy(row)


class DraftedVersionPage(Drafted, TariffVersionPage):
    """Versions of tariffs. What has been charged by one stays: it is taken back by another one that is as before it."""

    kind = Kind.PRICE

    def effect_of(self, row: Any, formsets: list[Any]) -> dict[str, Any]:
        """By pricing anew."""
        given = [one.cleaned_data for rows in formsets for one in rows.forms if one not in rows.deleted_forms]
        lines = [one for one in given if one.get("item")]
        rates = ((one["item"], one["above"], one["service_tier"], Rate(one["cost"], one["charge"])) for one in lines)
        prices = compiled(rates, marginal=row.marginal, exchange_rate=row.exchange_rate)
        return effects.of_price(TariffVersion(tariff=row.tariff), prices)

    def called(self, form: Any) -> str:
        """The tariff, and from when: a draft that says nothing begins when it is applied."""
        said = any(form.data.get(name) for name in (DATE, TIME))
        return str(form.instance) if said else _("%(tariff)s at once") % {"tariff": form.instance.tariff.slug}

    def shown(self, change: Change) -> list[tuple[str, str, str]]:
        """Rates a line each, and what else differs, beside those of the version that it was drafted from."""
        before, after = change.before or {}, change.after or {}
        was = _rates(before)
        if change.verb == Verb.ADD and change.set.state in OPEN:
            tariff = as_sent(after).get("tariff", "")
            newest = TariffVersion.objects.filter(tariff_id=int(tariff) if tariff.isdecimal() else 0)
            version = newest.order_by("-effective_from").first()
            was = _rates_of(version) if version else {}
        now = _rates(after)
        lines = [(name, was.get(name, "-"), now.get(name, "-")) for name in {**was, **now}]
        usual = {"marginal": "-", "currency": "USD", "exchange_rate": "1"}
        fields = {field.name: str(field.verbose_name) for field in self.model._meta.concrete_fields}
        named = [capfirst(fields[name]) for name in (*usual, "note")]
        said = dict(zip(named, (*usual.values(), "-"), strict=True))
        return lines + [one for one in super().shown(change) if one[0] in said and said[one[0]] not in one[2:]]

    def basis(self, request: HttpRequest, sent: QueryDict) -> Data:
        """The tariff's newest version, from which its form was filled."""
        tariff = sent.get("tariff", "")
        newest = TariffVersion.objects.filter(tariff_id=int(tariff) if tariff.isdecimal() else 0)
        moments = newest.order_by("-effective_from").values_list("effective_from", flat=True)[:1]
        return {"newest version": [f"{one:%Y-%m-%d %H:%M:%S.%f}" for one in moments]}

    def due(self, after: Data) -> Data:
        """At once, where the moment has passed that it was drafted for."""
        moment = " ".join((*after.get(DATE, [""]), *after.get(TIME, [""])))
        passed = moment.strip() and moment <= f"{timezone.now():%Y-%m-%d %H:%M:%S}"
        return {**after, DATE: [""], TIME: [""]} if passed else after

    def whole(self, request: HttpRequest, obj: Any) -> Data:
        """With its rates."""
        data = super().whole(request, obj)
        inline = self.get_inline_instances(request, None)[0]
        rows: Any = inline.get_formset(request, None)
        rates = list(obj.rates.order_by("pk"))
        counts = {"TOTAL": len(rates), "INITIAL": 0, "MIN_NUM": 0, "MAX_NUM": 1000}
        prefix = rows.get_default_prefix()
        data |= {f"{prefix}-{name}_FORMS": [str(count)] for name, count in counts.items()}
        for number, rate in enumerate(rates):
            data |= as_data(rows.form(instance=rate, prefix=f"{prefix}-{number}"))
        return data

    def taking_back(self, request: HttpRequest, change: Change) -> Change:
        """Of one in force: the version before it, again, from now on; of one to come: that it does not."""
        made = self.get_object(request, change.row) if change.verb == Verb.ADD else None
        if made is None or not in_force(made):
            return super().taking_back(request, change)
        before = made.tariff.versions.filter(effective_from__lt=made.effective_from).order_by("-effective_from").first()
        if before is None:
            raise CannotApply(_("%(what)s: there was no price before it.") % {"what": change.subject})
        note = f"As from {before.effective_from:%Y-%m-%d %H:%M} again"  # is kept, for readers of any language
        after = {**self.whole(request, before), DATE: [""], TIME: [""], "note": [note]}
        basis = self.basis(request, QueryDict(f"tariff={made.tariff_id}"))
        return Change(kind=change.kind, verb=Verb.ADD, before=basis, after=after)

    def _row(self, request: HttpRequest, change: Change) -> Any:
        obj = super()._row(request, change)
        if obj is not None and in_force(obj):
            raise CannotApply(_("%(what)s is in force: what has been charged stays.") % {"what": change.subject})
        return obj


def _rates(data: Data) -> dict[str, str]:
    """The rates that a form was sent with, by their names."""
    sent, found = as_sent(data), {}
    for number in range(int(sent.get("rates-TOTAL_FORMS") or 0)):
        item, above, tier, cost, charge = (
            sent.get(f"rates-{number}-{name}", "") for name in ("item", "above", "service_tier", "cost", "charge")
        )
        if item and f"rates-{number}-DELETE" not in sent:
            found[rate_name(item, int(above or 0), tier)] = _costs(cost, charge)
    return found


def _rates_of(version: TariffVersion) -> dict[str, str]:
    found = {}
    for rate in version.rates.order_by("pk"):
        prices = ("" if price is None else plain(price) for price in (rate.cost, rate.charge))
        found[rate_name(rate.item, rate.above, rate.service_tier)] = _costs(*prices)
    return found


def _costs(cost: str, charge: str) -> str:
    unknown = _("unknown")
    return _("cost %(cost)s, charge %(charge)s") % {"cost": cost or unknown, "charge": charge or unknown}
