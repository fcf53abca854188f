"""Configuration as a file: `apply` brings the database to what a file says, and says what that changed.

The file is read and checked as a whole before the database is looked at; then everything happens in one
transaction. What the file does not name is left alone. The same file a second time changes nothing.
"""

from collections.abc import Mapping
from pathlib import Path

from django.db import IntegrityError, connection, transaction

from gateway.configuration.catalog import apply_catalog
from gateway.configuration.file import ConfigurationError, load
from gateway.configuration.policies import apply_policies, apply_weights
from gateway.configuration.rows import Difference
from gateway.configuration.schema import read
from gateway.configuration.tenancy import apply_tenancy
from routing.starter.turn import take_turn


def apply(path: Path, environment: Mapping[str, str], *, dry_run: bool = False) -> Difference:
    """Applies the file at `path`, whose references are looked up in `environment`; gives the difference.

    A dry run does the same and takes it back, so that it meets every refusal the real one would. Raises
    `ConfigurationError`, and then nothing has changed.
    """
    sections = read(load(path, environment))
    difference = Difference()
    try:
        with transaction.atomic():
            take_turn()
            with connection.cursor() as cursor:
                cursor.execute("select now()")
                (now,) = cursor.fetchone()
            models = apply_catalog(sections, difference, now)
            bounds = apply_tenancy(sections["organizations"], difference, now)
            apply_policies(sections["policy"], models, bounds, difference)
            apply_weights(sections["choice_weights"], difference)
            if dry_run:
                transaction.set_rollback(True)
    except IntegrityError as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"somebody changed the same rows meanwhile; try again ({reason})") from None
    return difference
