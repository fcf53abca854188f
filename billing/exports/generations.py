"""The layout of generations: a row each, with what was called, used, charged and paid."""

from typing import TYPE_CHECKING, Any

from django.db.models import BooleanField, DateTimeField, DecimalField, IntegerField, JSONField, UUIDField

from billing.exports.columns import Column, Kind, Layout
from billing.models import Usage

if TYPE_CHECKING:
    from django.db.models import Field

COLUMNS = (
    "id",
    "created_at",
    "settled_at",
    "organization_slug",
    "project_slug",
    "key_name",
    "organization",
    "project",
    "key",
    "model",
    "provider",
    "upstream_model",
    "upstream_id",
    "service_tier",
    "stream",
    "end_user",
    "app",
    "status",
    "error",
    "finish_reason",
    "attempts",
    "ttft_ms",
    "duration_ms",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "audio_input_tokens",
    "image_input_tokens",
    "reasoning_tokens",
    "audio_output_tokens",
    "web_searches",
    "video_input_tokens",
    "image_output_tokens",
    "images",
    "seconds",
    "basis",
    "suspect",
    "tariff_version",
    "charge",
    "provider_cost",
    "overrun",
    "metadata",
)
# What the operator pays, and to whom, is not the tenant's to know.
OPERATORS = frozenset({"provider", "upstream_model", "upstream_id", "provider_cost", "tariff_version"})


def _column(field: "Field[Any, Any]") -> Column:
    value = f"billing_usage.{field.column}"
    match field:
        case BooleanField():
            kind = Kind.BOOLEAN
        case IntegerField():
            kind = Kind.INTEGER
        case DecimalField():
            kind = Kind.DECIMAL
        case UUIDField():
            kind, value = Kind.CODE, f"encode(uuid_send({value}), 'hex')"
        case DateTimeField():
            kind = Kind.TIME
        case JSONField():
            kind = Kind.JSON
        case _:
            kind = Kind.TEXT
    return Column(field.name, kind, value, field.null)


_FIELDS = {field.name: field for field in Usage._meta.concrete_fields}

GENERATIONS = Layout(
    "generations",
    tuple(_column(_FIELDS[name]) for name in COLUMNS),
    ("charge", "provider_cost", "overrun", "prompt_tokens", "completion_tokens"),
)
