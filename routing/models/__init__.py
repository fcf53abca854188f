"""Where a call can go: providers and their credentials, models, offers, and the policies that order them."""

from routing.models.health import ClosedBy, Ejection
from routing.models.model import (
    READABLE,
    Forced,
    Modality,
    Model,
    Offer,
    model_slug_validator,
    never_written,
    text_only,
)
from routing.models.policy import ChoiceWeight, Factor, Level, Policy, Strategy, Term, Word
from routing.models.provider import (
    FORMATS,
    AuthStyle,
    CapField,
    Credential,
    Protocol,
    Provider,
    Variant,
    credential_place,
    validate_base_url,
)
from routing.models.replay import Replay
from routing.models.statistics import ALL_SIZES, OfferRollup, OfferStatistics, Window

__all__ = [
    "ALL_SIZES",
    "FORMATS",
    "READABLE",
    "AuthStyle",
    "CapField",
    "ChoiceWeight",
    "ClosedBy",
    "Credential",
    "Ejection",
    "Factor",
    "Forced",
    "Level",
    "Modality",
    "Model",
    "Offer",
    "OfferRollup",
    "OfferStatistics",
    "Policy",
    "Protocol",
    "Provider",
    "Replay",
    "Strategy",
    "Term",
    "Variant",
    "Window",
    "Word",
    "credential_place",
    "model_slug_validator",
    "never_written",
    "text_only",
    "validate_base_url",
]
