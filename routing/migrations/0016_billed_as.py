"""Step: add. What a provider's bill calls a credential."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("routing", "0015_apart")]
    operations = [
        migrations.AddField(
            "credential",
            "billed_as",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="What the provider's bill calls this key: its id there, such as key_abc123. Empty: its name.",
                max_length=200,
                validators=[
                    django.core.validators.RegexValidator(
                        "\\A\\w[^\\x00-\\x1f\\x7f]*\\Z", "It begins with a letter or a digit."
                    )
                ],
            ),
        ),
    ]
