"""Offers in memory, for tests of what a process knows of them."""

import itertools
from typing import Any
from uuid import uuid4

from routing.catalog import Credential, Offer, Provider

_ids = itertools.count(1)


def make_provider(**fields: Any) -> Provider:
    """A provider; by default five failures open a breaker for 10 s."""
    return Provider(
        **{
            "slug": f"provider-{next(_ids)}",
            "protocol": "openai_chat",
            "variant": "",
            "base_url": "http://127.0.0.1:1",
            "auth_style": "bearer",
            "stream_usage": True,
            "cap_field": "max_tokens",
            "connect_timeout": 5.0,
            "first_byte_timeout": 60.0,
            "idle_timeout": 30.0,
            "total_timeout": 300.0,
            "failure_threshold": 5,
            "cooldown": 10.0,
            "trains_on_data": False,
            "retains_data": False,
            "reasoning_format": "",
            "max_event_bytes": 32 << 20,
            "api_version": "",
            "region": "",
            **fields,
        }
    )


def make_offer(provider: Provider | None = None, credentials: int = 1, **fields: Any) -> Offer:
    """An offer with so many credentials."""
    return Offer(
        **{
            "id": next(_ids),
            "provider": provider or make_provider(),
            "upstream_model": "upstream",
            "priority": 0,
            "weight": 1,
            "context_length": 0,
            "max_output": 4096,
            "input_modalities": (),
            "supported_parameters": (),
            "quality": 50,
            "forced": "",
            "credentials": tuple(Credential(uuid4(), f"secret-{number}") for number in range(credentials)),
            "versions": (),
            **fields,
        }
    )
