-- The three roles and the database, the same for the embedded engine, for compose and for CI. Run once, by a superuser.
-- The limits on connections leave some of the server's 200 to the owner and to whoever has to look after it; raise them
-- with max_connections when more processes serve. Passwords are set apart. Statements end in a semicolon and an empty
-- line: PostgreSQL's single-user mode wants that.

-- Migrations. It makes test databases, and may grant the other two roles and act as them.
CREATE ROLE meterline_owner LOGIN CREATEDB NOSUPERUSER;

-- The API, the worker and the beat.
CREATE ROLE meterline_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE CONNECTION LIMIT 120;

-- Requests to the console.
CREATE ROLE meterline_console LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE CONNECTION LIMIT 40;

GRANT meterline_app, meterline_console TO meterline_owner WITH ADMIN OPTION;

CREATE DATABASE meterline OWNER meterline_owner;

REVOKE ALL ON DATABASE meterline FROM PUBLIC;

GRANT CONNECT ON DATABASE meterline TO meterline_app, meterline_console;

