"""A test request from the console: through the public API, with a key, as any program's would be."""

import threading
from http import HTTPStatus
from typing import Any
from uuid import UUID

import msgspec
from django import forms
from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from accounts.access.access import access_of
from accounts.access.table import Verb
from accounts.console import money
from accounts.models import ApiKey
from billing.models import Usage
from routing.base_url import BadUrl, parse_base_url
from routing.egress import Egress, parse_allow
from routing.outside import Answer, NoAnswer, Outside

SECONDS = 20.0  # of a request, from the connection to the last byte
MOST_BYTES = 4 << 20
MOST_MODELS = 1000
MOST_SHOWN = 2000  # characters of an answer
TOKENS = 64
HELLO = "Say hello in one short sentence."
_places = threading.BoundedSemaphore(2)  # each waits in one of the console's few threads


class Ask(forms.Form):
    """With which key, of which model, what."""

    secret = forms.RegexField(
        "^[!-~]+$",
        max_length=200,
        label=gettext_lazy("Key"),
        help_text=gettext_lazy("Its whole secret, as it was shown once. It is used for this and kept nowhere."),
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "off"}, render_value=True),
    )
    model = forms.ChoiceField(label=gettext_lazy("Model"), widget=UnfoldAdminSelectWidget)
    prompt = forms.CharField(
        max_length=500, initial=HELLO, label=gettext_lazy("Message"), widget=UnfoldAdminTextInputWidget
    )

    def __init__(self, data: Any, models: list[str]) -> None:
        super().__init__(data, initial={"model": models[0] if models else ""})
        self.fields["model"].choices = [(slug, slug) for slug in models]  # type: ignore[attr-defined]
        if not models:  # they are read with the key
            del self.fields["model"], self.fields["prompt"]


class NotAnswered(Exception):
    """The gateway gave no answer, or refused; the message tells why, for people."""


@transaction.non_atomic_requests  # the gateway is waited for
@sensitive_post_parameters("secret")
@require_http_methods(["GET", "HEAD", "POST"])
def first_request(request: HttpRequest) -> HttpResponse:
    """Asks for a key; with it for one of the models it may use; and shows the answer, its cost and where it is kept.

    For whoever may make keys. What is seen of the generation is what their role sees.
    """
    access = access_of(request)
    if not access.may(ApiKey, Verb.ADD):
        raise PermissionDenied
    form, told, wrong = Ask(request.POST or None, []), {}, ""
    if request.method == "POST" and form.is_valid():
        secret = form.cleaned_data["secret"]
        if not _places.acquire(blocking=False):
            wrong = _("Others are trying theirs just now. Try again in a moment.")
        else:
            try:
                models = _models(request, secret)
                form = Ask(request.POST if "model" in request.POST else None, models)
                form.fields["secret"].initial = secret
                if form.is_bound and form.is_valid():
                    told = _told(request, secret, form.cleaned_data["model"], form.cleaned_data["prompt"])
            except NotAnswered as error:
                wrong = str(error)
            finally:
                _places.release()
    context = {
        **admin.site.each_context(request),
        "title": _("A first request"),
        "form": form,
        "told": told,
        "wrong": wrong,
        "api": _address(request),
    }
    headers = {"Cache-Control": "no-store, private", "Referrer-Policy": "same-origin"}
    return TemplateResponse(request, "admin/first_request.html", context, headers=headers)


def _address(request: HttpRequest) -> str:
    """Where the API is: GATEWAY_URL, or the socket that this request came in by, in a process that serves the API too.

    Not what the browser says its host is: that could be another one. Empty: it is not known.
    """
    if settings.GATEWAY_URL:
        return str(settings.GATEWAY_URL).rstrip("/")
    if settings.SERVE != "all":
        return ""
    host = request.META["SERVER_NAME"]
    return f"http://{f'[{host}]' if ':' in host else host}:{request.META['SERVER_PORT']}"


def _models(request: HttpRequest, secret: str) -> list[str]:
    """What the key may be used for. Raises `NotAnswered`."""
    listed = _read(_ask(request, secret, "GET", "/v1/models"))
    models = [one["id"] for one in listed.get("data", ()) if isinstance(one, dict) and isinstance(one.get("id"), str)]
    if not models:
        raise NotAnswered(_("There is no model that this key may use."))
    return models[:MOST_MODELS]


def _told(request: HttpRequest, secret: str, model: str, prompt: str) -> dict[str, Any]:
    """The answer. Raises `NotAnswered`."""
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": TOKENS}
    answer = _ask(request, secret, "POST", "/v1/chat/completions", msgspec.json.encode(body))
    said = _read(answer)
    try:
        text = said["choices"][0]["message"]["content"] or ""
        generation = UUID(answer.headers["x-generation-id"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise NotAnswered(_("What answered is no gateway: look at GATEWAY_URL.")) from None
    row = access_of(request).rows(Usage.objects.filter(pk=generation)).only("charge").first()
    cost = money(row.charge) if row else ""
    return {"text": str(text)[:MOST_SHOWN], "row": row, "cost": cost, "usage": said.get("usage") or {}}


def _ask(request: HttpRequest, secret: str, method: str, path: str, content: bytes = b"") -> Answer:
    """One exchange with the gateway, which is the one address that is dialled here. Raises `NotAnswered`."""
    base = _address(request)
    if not base:
        raise NotAnswered(_("Where the API is, is not known here: set GATEWAY_URL."))
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    try:
        place = parse_base_url(base)
        only = parse_allow([f"{place.scheme}://{place.authority.removesuffix(f':{place.port}')}:{place.port}"])
        return Outside(Egress(only)).ask(
            method, f"{base}{path}", headers=headers, content=content, seconds=SECONDS, most_bytes=MOST_BYTES
        )
    except BadUrl:
        raise NotAnswered(_("GATEWAY_URL is no address.")) from None
    except (NoAnswer, OSError) as error:
        words = {"address": base, "words": str(error)}
        raise NotAnswered(_("The gateway at %(address)s did not answer: %(words)s") % words) from None


def _read(answer: Answer) -> dict[str, Any]:
    """The body of an answer. Raises `NotAnswered` for a refusal, in the gateway's words."""
    try:
        said = msgspec.json.decode(answer.body)
    except ValueError:
        said = None
    if answer.status == HTTPStatus.OK and isinstance(said, dict):
        return said
    error = said.get("error") if isinstance(said, dict) else None
    words = error.get("message") if isinstance(error, dict) else None
    facts = {"status": answer.status, "words": str(words or "")[:500]}
    raise NotAnswered(_("The gateway answered %(status)d. %(words)s") % facts)
