"""Well-known vendors, as data: what a price list does not say about them.

Facts from each vendor's own documentation. A vendor that is not here is not imported: it speaks a protocol that is none
of the gateway's, or nobody has looked. Of a service whose address is each customer's own the rest can be filled in.
"""

from dataclasses import dataclass
from typing import Any

from routing.models import AuthStyle, CapField, Protocol, Variant


@dataclass(frozen=True, slots=True)
class Vendor:
    """Where a vendor's endpoint is and how it differs. `slug` is also its name in the price list.

    `author` stands before a model's name in its public slug, unless the vendor's name for it has one already.
    `only`: beginnings of the names that this endpoint sells; empty: everything on the list.
    """

    slug: str
    author: str
    base_url: str
    auth_style: str = AuthStyle.BEARER
    cap_field: str = CapField.MAX_TOKENS
    stream_usage: bool = True
    protocol: str = Protocol.OPENAI_CHAT
    only: tuple[str, ...] = ()
    variant: str = Variant.PLAIN
    api_version: str = ""

    @property
    def quirks(self) -> dict[str, Any]:
        """What a provider's row has to say to get along with it, besides the address."""
        return {
            "protocol": self.protocol,
            "variant": self.variant,
            "api_version": self.api_version,
            "auth_style": self.auth_style,
            "cap_field": self.cap_field,
            "stream_usage": self.stream_usage,
        }


# A model's name and context come from the first vendor here that lists it: those who make models come first.
VENDORS = (
    Vendor("openai", "openai", "https://api.openai.com/v1", cap_field=CapField.MAX_COMPLETION_TOKENS),
    Vendor(
        "anthropic",
        "anthropic",
        "https://api.anthropic.com/v1",
        auth_style=AuthStyle.X_API_KEY,
        protocol=Protocol.ANTHROPIC_MESSAGES,
    ),
    Vendor(
        "google",
        "google",
        "https://generativelanguage.googleapis.com/v1beta",
        auth_style=AuthStyle.X_GOOG_API_KEY,
        protocol=Protocol.GOOGLE_GEMINI,
        only=("gemini-", "gemma-"),  # the list has the models of another of its services too
    ),
    # Refuses fields it does not know, stream_options among them, and ends a stream with usage unasked.
    Vendor("mistral", "mistralai", "https://api.mistral.ai/v1", stream_usage=False),
    Vendor("x-ai", "x-ai", "https://api.x.ai/v1"),
    Vendor("deepseek", "deepseek", "https://api.deepseek.com/v1"),
    Vendor("moonshotai", "moonshotai", "https://api.moonshot.ai/v1"),
    Vendor("zai", "z-ai", "https://api.z.ai/api/paas/v4"),
    Vendor("minimax", "minimax", "https://api.minimax.io/v1"),
    Vendor("groq", "groq", "https://api.groq.com/openai/v1"),
    Vendor("cerebras", "cerebras", "https://api.cerebras.ai/v1"),
    Vendor("fireworks", "fireworks", "https://api.fireworks.ai/inference/v1"),
    Vendor("together", "together", "https://api.together.xyz/v1"),
    Vendor("novita", "novita", "https://api.novita.ai/openai/v1"),
    Vendor("ovhcloud", "ovhcloud", "https://oai.endpoints.kepler.ai.cloud.ovh.net/v1"),
    Vendor("openrouter", "openrouter", "https://openrouter.ai/api/v1"),
)

# What stands in braces in an address is the customer's own, and is put there before it can be saved.
SERVICES = (
    Vendor(
        "azure",
        "openai",
        "https://{resource}.openai.azure.com/openai",
        auth_style=AuthStyle.API_KEY,
        cap_field=CapField.MAX_COMPLETION_TOKENS,
        variant=Variant.DEPLOYMENTS,
        api_version="2024-10-21",
    ),
    Vendor(
        "bedrock",
        "anthropic",
        "https://bedrock-runtime.{region}.amazonaws.com",
        auth_style=AuthStyle.SIGV4,
        protocol=Protocol.ANTHROPIC_MESSAGES,
        variant=Variant.INVOKE,
    ),
    Vendor(
        "vertex-anthropic",
        "anthropic",
        "https://{place}-aiplatform.googleapis.com/v1/projects/{project}/locations/{place}",
        auth_style=AuthStyle.SERVICE_ACCOUNT,
        protocol=Protocol.ANTHROPIC_MESSAGES,
        variant=Variant.RAW_PREDICT,
    ),
    Vendor(
        "vertex-google",
        "google",
        "https://{place}-aiplatform.googleapis.com/v1/projects/{project}/locations/{place}/publishers/google",
        auth_style=AuthStyle.SERVICE_ACCOUNT,
        protocol=Protocol.GOOGLE_GEMINI,
    ),
)


def vendor_at(base_url: str) -> Vendor | None:
    """The vendor of the table whose endpoint this is."""
    return next((vendor for vendor in VENDORS if vendor.base_url == base_url.rstrip("/")), None)
