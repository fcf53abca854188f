"""Fields that would turn a dial elsewhere, or change what it authenticates with, if some upstream obeyed
them.

Several gateways and SDK layers take them from a request's body (CVE-2024-6587 sent an operator's key to a
host of the client's choice). They are refused, never passed on and never dropped in silence, however they are
spelled: letter case, dashes, underscores.
"""

from typing import Any

from gateway.errors import InvalidRequest

# Fields of the protocol: most bodies have no other, so most are checked by one set operation.
_ORDINARY = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens"),
        *("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "seed"),
        *("stop", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
        *("response_format", "logprobs", "top_logprobs", "logit_bias", "metadata", "user", "user_id"),
        *("safety_identifier", "service_tier", "store", "prediction", "audio", "modalities", "verbosity"),
        *("reasoning", "reasoning_effort", "include_reasoning", "usage", "thinking", "web_search_options"),
        *("prompt_cache_key", "prompt_cache_retention", "repetition_penalty"),
    }
)
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


def refuse_overrides(body: dict[str, Any]) -> None:
    """Raise `InvalidRequest` (code `forbidden_parameter`, its path as `param`) if a body has such a field."""
    for name in body.keys() - _ORDINARY:
        plain = _plain(name)
        _refuse(plain, name)
        if plain in _CARRIERS:
            _search(body[name], name)


def _search(value: Any, path: str) -> None:
    """Look through what a carrier holds. The body's depth is bounded, so the recursion is."""
    if type(value) is dict:
        for name, inner in value.items():
            _refuse(_plain(name), f"{path}.{name}")
            _search(inner, f"{path}.{name}")
    elif type(value) is list:
        for inner in value:
            _search(inner, path)


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _refuse(plain: str, path: str) -> None:
    if plain in _REFUSED or plain.startswith(_REFUSED_STARTS):
        path = "".join(c if c.isprintable() else "?" for c in path[:200])
        raise InvalidRequest(
            f"Parameter {path} is not allowed: where a request goes is the gateway's to decide. Remove it.",
            param=path,
            code="forbidden_parameter",
        )
