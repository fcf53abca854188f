"""What a key's lists of allowed models and endpoints may name: what there is, or a key would allow nothing."""

from collections.abc import Iterable, Iterator

from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.translation import gettext as _

from routing.models import Model


def endpoints() -> set[str]:
    """The names that `allowed_endpoints` may hold: those of the API's views."""
    return {name for view in _views(get_resolver().url_patterns) if (name := getattr(view, "endpoint", ""))}


def endpoint_objection(names: Iterable[str]) -> str:
    """What is wrong with these allowed endpoints; nothing when all of them exist."""
    known = endpoints()
    unknown = [name for name in names if name not in known]
    if not unknown:
        return ""
    told = {"names": ", ".join(unknown), "known": ", ".join(sorted(known))}
    return _("There is no endpoint %(names)s. There are: %(known)s.") % told


def model_objection(names: Iterable[str]) -> str:
    """What is wrong with these allowed models; nothing when each is the slug of one, active or not."""
    given = list(names)
    slugs = set(Model.objects.filter(slug__in=given).values_list("slug", flat=True))
    for name in given:
        if name in slugs:
            continue
        if owner := Model.objects.filter(aliases__contains=[name]).first():
            return _("%(name)s is another name of %(slug)s: write that one.") % {"name": name, "slug": owner.slug}
        words = _("There is no model %(name)s. Write its slug, like author/name, as the list of models shows it.")
        return words % {"name": name}
    return ""


def _views(patterns: Iterable[URLPattern | URLResolver]) -> Iterator[object]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _views(pattern.url_patterns)
        else:
            yield getattr(pattern.callback, "view_class", None)
