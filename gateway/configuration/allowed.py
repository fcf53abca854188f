"""What a key's lists of allowed models and endpoints may name: what there is, or a key would allow nothing."""

from collections.abc import Iterable, Iterator

from django.urls import URLPattern, URLResolver, get_resolver

from routing.models import Model


def endpoints() -> set[str]:
    """The names that `allowed_endpoints` may hold: those of the API's views."""
    return {name for view in _views(get_resolver().url_patterns) if (name := getattr(view, "endpoint", ""))}


def endpoint_objection(names: Iterable[str]) -> str:
    """What is wrong with these allowed endpoints; nothing when all of them exist."""
    known = endpoints()
    unknown = [name for name in names if name not in known]
    return f"There is no endpoint {', '.join(unknown)}. There are: {', '.join(sorted(known))}." if unknown else ""


def model_objection(names: Iterable[str]) -> str:
    """What is wrong with these allowed models; nothing when each is the slug of one, active or not."""
    given = list(names)
    slugs = set(Model.objects.filter(slug__in=given).values_list("slug", flat=True))
    for name in given:
        if name in slugs:
            continue
        if owner := Model.objects.filter(aliases__contains=[name]).first():
            return f"{name} is another name of {owner.slug}: write that one."
        return f"There is no model {name}. Write its slug, like author/name, as the list of models shows it."
    return ""


def _views(patterns: Iterable[URLPattern | URLResolver]) -> Iterator[object]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _views(pattern.url_patterns)
        else:
            yield getattr(pattern.callback, "view_class", None)
