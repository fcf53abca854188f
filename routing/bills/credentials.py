"""What a provider's bill calls our credentials."""

from uuid import UUID

from routing.models import Credential


def billed_as(provider: str) -> dict[UUID, str]:
    """By id, of a provider's slug: as it was said that the bill calls it, else as we call it."""
    found = Credential.objects.filter(provider__slug=provider).values_list("pk", "billed_as", "name")
    return {id: billed or name for id, billed, name in found}


def told_apart(provider: str) -> bool:
    """Whether it was said of any what the bill calls it."""
    return Credential.objects.filter(provider__slug=provider).exclude(billed_as="").exists()
