#!/bin/sh
# Sets the roles' passwords when compose makes its cluster. psql reads them from the environment, not from arguments.
set -eu
psql -v ON_ERROR_STOP=1 --username postgres --dbname meterline <<'SQL'
\getenv owner METERLINE_OWNER_PASSWORD
\getenv app METERLINE_APP_PASSWORD
\getenv console METERLINE_CONSOLE_PASSWORD
ALTER ROLE meterline_owner PASSWORD :'owner';
ALTER ROLE meterline_app PASSWORD :'app';
ALTER ROLE meterline_console PASSWORD :'console';
SQL
