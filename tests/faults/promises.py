"""What a row of the table says, and the cells it is played in.

A row is played four times: to a client that streams and to one that does not, with nobody else to go to and with
another provider. What a row says for the first is what the others say as well, unless it says otherwise:

- a provider that failed before anything was relayed is followed by the other one, which answers
- a client that does not stream has been sent nothing until all is there, so a break amid the answer is a failure like
  one before it
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SAID = "one two three four five six"


@dataclass(frozen=True, slots=True)
class Refused:
    """An error with its true status. `retry_after`: the header's value in seconds, from and to (inclusive).

    `moves`: another provider is asked, if there is one. `basis`: what the bill rests on; of two, as the network has it.
    """

    status: int
    code: str
    type: str = "upstream_error"
    retry_after: tuple[int, int] | None = None
    moves: bool = True
    basis: str = "nothing"
    message: str = ""  # what it must say; empty: anything of ours


@dataclass(frozen=True, slots=True)
class Broken:
    """Part of an answer, one error event, the end. Nobody else is asked, since something was relayed."""

    code: str
    type: str = "upstream_error"
    basis: str = "estimated"


@dataclass(frozen=True, slots=True)
class Late:
    """Keep-alive comments, and since they are out an error event where a status would have been."""

    code: str
    basis: str = "unknown"


@dataclass(frozen=True, slots=True)
class Answered:
    """The whole answer, by the first provider. `text`: what it says."""

    basis: str = "reported"
    suspect: bool = False
    text: str | None = SAID


Told = Refused | Broken | Late | Answered


@dataclass(frozen=True, slots=True)
class Row:
    """One fault.

    - `name`: what it is called in the table; `promise`: what is promised, in a line
    - `says`: options of the simulated provider, see there; `at`: where the provider is, see `upstreams`
    - `told`: what a client that streams is told; `whole`: one that does not; None: the same
    - `fault`: what the attempt's row calls it; `whole_fault` likewise
    - `provider`, `body`: fields of the provider's row and of the request
    - `again`: what the next request is told, without a dial
    - `dials`: how many the first provider sees, where it can count
    - `forms`: which of "streamed" and "whole" it is played in
    - `memory`: by how many MiB the gateway may grow meanwhile
    - `within`: seconds a client alone waits at most; generous where nothing is promised
    - `fresh`: no connection is kept from before; on one that is, a request that got no byte is another attempt
    - `twice`: the request is made twice on one connection
    - `hard`: the tenant has a hard budget
    """

    name: str
    promise: str
    says: str
    told: Told
    fault: str = ""
    whole: Told | None = None
    whole_fault: str | None = None
    at: str = "simulated"
    provider: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    again: Refused | None = None
    dials: int = 1
    forms: tuple[str, ...] = ("streamed", "whole")
    memory: int | None = None
    within: float = 15.0
    twice: bool = False
    hard: bool = False
    fresh: bool = False

    def told_to(self, form: str) -> Told:
        """What a client of this form is told when there is nobody else."""
        return self.whole if form == "whole" and self.whole is not None else self.told

    def fault_in(self, form: str) -> str:
        """What the attempt is recorded as."""
        return self.whole_fault if form == "whole" and self.whole_fault is not None else self.fault


@dataclass(frozen=True, slots=True)
class Cell:
    """One row as one kind of client sees it."""

    row: Row
    form: str  # streamed, whole
    company: str  # alone, with another

    @property
    def id(self) -> str:
        """Its name among the tests."""
        return f"{self.row.name}-{self.form}-{self.company}".replace(" ", "-")
