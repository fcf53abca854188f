#!/usr/bin/env python
"""Django's command line. Commands here run as the database's owner unless DATABASE_ROLE says otherwise."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    os.environ.setdefault("DATABASE_ROLE", "owner")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
