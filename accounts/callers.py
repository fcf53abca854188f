"""Who a living key speaks for, read once into memory; requests never ask the database for it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Any
from uuid import UUID

# A row for each living key, with its project and organization. Narrowed by appending `where`.
QUERY = """
select k.id, k.digest, k.name, k.prefix, k.owner_id, k.scopes, k.allowed_endpoints, k.allowed_models, k.allowed_ips,
       k.max_request_price, k.min_output_cap, k.on_leave, k.expires_at, p.id, p.slug, p.default_output_cap,
       coalesce(nullif(k.dialect, ''), p.dialect), p.strict_params, p.sends_unknown_params,
       o.id, o.slug, p.payload_days
  from accounts_alive_key a
  join accounts_apikey k on k.id = a.id
  join accounts_project p on p.id = a.project
  join accounts_organization o on o.id = a.organization
"""
# Those of digests, one by one: a plan for all at once, kept from a time of few keys, would read every key each time.
FIND = f"select q.* from unnest(%s::bytea[]) d cross join lateral ({QUERY} where k.digest = d offset 0) q"  # noqa: S608


@dataclass(frozen=True, slots=True)
class Caller:
    """A living key with its project and organization. Empty lists allow everything."""

    key: UUID
    digest: bytes
    name: str
    prefix: str
    owner: int | None
    scopes: frozenset[str]
    allowed_endpoints: frozenset[str]
    allowed_models: frozenset[str]
    allowed_networks: tuple[IPv4Network | IPv6Network, ...]
    max_request_price: Decimal | None
    min_output_cap: int
    on_leave: str  # of `accounts.models.OnLeave`
    expires_at: datetime | None  # UTC, exclusive
    project: UUID
    project_slug: str
    default_output_cap: int | None
    dialect: str  # the key's, else the project's
    strict_params: bool
    sends_unknown_params: bool
    organization: UUID
    organization_slug: str
    payload_days: int = 0  # that what is asked and answered is kept; 0: it is not

    def is_alive(self, now: datetime) -> bool:
        """Whether the key has not expired since it was read; its revocation arrives as a change."""
        return self.expires_at is None or now < self.expires_at

    def may_come_from(self, address: IPv4Address | IPv6Address) -> bool:
        """Whether the key may be used from `address`; an IPv4-mapped IPv6 address counts as the IPv4 one."""
        if not self.allowed_networks:
            return True
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return any(address in network for network in self.allowed_networks)


def from_row(row: Iterable[Any]) -> Caller:
    """A `Caller` from one row of `QUERY`."""
    (
        key, digest, name, prefix, owner, scopes, endpoints, models, networks, price, cap, on_leave, expires,
        project, project_slug, default_cap, dialect, strict, sends_unknown, organization, organization_slug,
        payload_days,
    ) = row  # fmt: skip
    return Caller(
        key,
        bytes(digest),
        name,
        prefix,
        owner,
        frozenset(scopes),
        frozenset(endpoints),
        frozenset(models),
        tuple(map(ip_network, networks)),
        price,
        cap,
        on_leave,
        expires,
        project,
        project_slug,
        default_cap,
        dialect,
        strict,
        sends_unknown,
        organization,
        organization_slug,
        payload_days,
    )
