"""Fields that would turn a dial elsewhere, or change what it authenticates with, if some upstream obeyed
them.

Several gateways and SDK layers take them from a request's body (CVE-2024-6587 sent an operator's key to a
host of the client's choice). They are refused, never passed on and never dropped in silence, however they are
spelled: letter case, dashes, underscores.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from gateway.wire.errors import InvalidRequest

MAX_CARRIED = 1_000  # values that a carrier may hold: no wish for a route has as many
MAX_NAME = 64  # characters of a name in a path

_REFUSED = frozenset(
    {
        *("apibase", "apibaseurl", "baseurl", "basepath", "endpoint", "endpointurl", "apiendpoint"),
        *(
            "apikey",
            "apikeys",
            "apitoken",
            "accesstoken",
            "authtoken",
            "bearertoken",
            "authorization",
            "auth",
        ),
        *("credential", "credentials", "litellmcredentialname", "clientsecret", "tenantid"),
        *("apiversion", "apitype", "organization", "organizationid", "openaiorganization"),
        *("customllmprovider", "llmprovider", "deploymentid", "regionname"),
        *("headers", "extraheaders", "defaultheaders", "httpheaders", "requestheaders", "extraquery"),
        *("proxy", "proxies", "httpproxy", "httpsproxy", "proxyurl", "sslverify", "verifyssl"),
    }
)
_REFUSED_STARTS = ("vertex", "aws", "azure")
# Objects that carry such fields one level down or deeper. Others may hold any name, as a schema or labels do.
_CARRIERS = frozenset(
    {
        *("extrabody", "provider", "provideroptions", "providerparams", "providerconfig", "providers"),
        *("litellmparams", "userconfig", "modellist", "modelinfo", "routersettings", "modelroutingconfig"),
        *("fallbacks", "contextwindowfallbacks", "contentpolicyfallbacks"),
        *("client", "clientoptions", "clientconfig", "connection", "deployment", "transport"),
    }
)


_OWN_WORDS = "additional_properties"  # A map of the client's own beside its routing wishes; it stays here.


def refuse_overrides(body: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise `InvalidRequest` (code `forbidden_parameter`, its path as `param`) if one of `names` of a body is such a
    field, or carries one.
    """
    for name in names:
        plain = folded(name)
        _refuse(plain, name)
        if plain in _CARRIERS:
            _search(body[name], name[:MAX_NAME], count(1))


def _search(value: Any, path: str, number: Iterator[int]) -> None:
    """Look through what a carrier holds. The body's depth is bounded, so the recursion is; the values are counted."""
    if next(number) > MAX_CARRIED:
        carrier = path.partition(".")[0]
        raise InvalidRequest(
            f"Parameter {carrier} holds more than {MAX_CARRIED} values. Send fewer.",
            param=carrier,
            code="invalid_value",
        )
    if type(value) is dict:
        for name, inner in value.items():
            if name == _OWN_WORDS and path.startswith("model_routing_config"):
                continue
            inside = f"{path}.{name[:MAX_NAME]}"  # a path of whole names could grow by a megabyte a level
            _refuse(folded(name), inside)
            _search(inner, inside, number)
    elif type(value) is list:
        for inner in value:
            _search(inner, path, number)


def folded(name: str) -> str:
    """A field's name without what vendors spell differently."""
    return name.replace("-", "").replace("_", "").lower()


def _refuse(plain: str, path: str) -> None:
    if plain in _REFUSED or plain.startswith(_REFUSED_STARTS):
        path = "".join(c if c.isprintable() else "?" for c in path[:200])
        raise InvalidRequest(
            f"Parameter {path} is not allowed: where a request goes is the gateway's to decide. Remove it.",
            param=path,
            code="forbidden_parameter",
        )
