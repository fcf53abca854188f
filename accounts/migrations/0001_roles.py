"""Step 1 of every installation: the two roles that serve, and what they may do with tables not yet made.

`meterline_app` reads; billing grants it the hot tables. `meterline_console` edits configuration; billing takes usage and
the ledger from it again. Roles may exist already (a deployment makes them with passwords of its own); made here they
cannot log in, and the owner's connections become them by SET ROLE.
"""

from django.db import migrations

ROLES = """
do $$
declare
    v_role text;
begin
    foreach v_role in array array['meterline_app', 'meterline_console'] loop
        begin
            if not exists (select 1 from pg_roles where rolname = v_role) then
                execute format('create role %I nologin', v_role);
            end if;
        exception
            when duplicate_object then null;  -- another database of this cluster is migrated at the same time
            when insufficient_privilege then
                raise exception 'The role % does not exist and % may not create it.', v_role, current_user
                      using hint = 'Create it as a superuser, or give the owner CREATEROLE.';
        end;
        -- The owner acts as them; PostgreSQL 15 gives a creator no membership, 16 and later gives one without SET.
        if not pg_has_role(current_user, v_role, 'member') or current_setting('server_version_num')::int >= 160000 then
            begin
                execute format('grant %I to %I', v_role, current_user);
            exception when insufficient_privilege then null;  -- roles with logins of their own need no membership
            end;
        end if;
    end loop;
end
$$;
grant usage on schema public to meterline_app, meterline_console;
alter default privileges in schema public grant select on tables to meterline_app;
alter default privileges in schema public grant select, insert, update, delete on tables to meterline_console;
alter default privileges in schema public grant usage on sequences to meterline_app, meterline_console;
"""


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    # The tables of Django's own apps must come under the default privileges too.
    run_before = [
        ("contenttypes", "0001_initial"),
        ("auth", "0001_initial"),
        ("sessions", "0001_initial"),
        ("admin", "0001_initial"),
    ]
    operations = [migrations.RunSQL(ROLES, migrations.RunSQL.noop)]
