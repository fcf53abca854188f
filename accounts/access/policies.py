"""For migrations: row-level security, by which the console's role sees and writes the rows of organizations it may see.

The other roles are not concerned: for them a policy says yes, as a constant, which the planner leaves out.
"""

from django.db import migrations

ALL = "(select accounts_sees_all())"
SEEN = "any ((select accounts_seen())::uuid[])"
NAMES = ("sees", "adds", "changes", "deletes", "app")


def hold_apart(table: str, organization: str = "", *, writes: str = "") -> migrations.RunSQL:
    """Policies of a table. `organization` is SQL with `{}` for the organizations seen, as in `organization_id = {}`;
    empty: members see nothing of it. `writes` likewise says which rows members may write.

    Who sees all writes all that its grants let it write.
    """
    reads = f"{ALL} or {organization.format(SEEN)}" if organization else ALL
    changes = f"{ALL} or ({writes.format(SEEN)})" if writes else ALL
    lines = [
        *(f"drop policy if exists {name} on {table}" for name in NAMES),  # a migration that was cut off begins anew
        f"alter table {table} enable row level security",
        f"create policy sees on {table} for select to meterline_console using ({reads})",
        f"create policy adds on {table} for insert to meterline_console with check ({changes})",
        f"create policy changes on {table} for update to meterline_console using ({changes}) with check ({changes})",
        f"create policy deletes on {table} for delete to meterline_console using ({changes})",
        f"create policy app on {table} to meterline_app using (true) with check (true)",
    ]
    back = [f"alter table {table} disable row level security", *(f"drop policy {name} on {table}" for name in NAMES)]
    return migrations.RunSQL(";\n".join(lines) + ";", ";\n".join(back) + ";")
