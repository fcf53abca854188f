"""Step: expand. How large one event or body of a provider may be; a default of the database, for code from before."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("routing", "0009_rests_of_one")]
    operations = [
        migrations.AddField(
            "provider",
            "max_event_bytes",
            models.PositiveIntegerField(
                default=33554432,
                db_default=33554432,
                validators=[
                    django.core.validators.MinValueValidator(65536),
                    django.core.validators.MaxValueValidator(67108864),
                ],
                help_text="Of one event, or of one whole body: 65,536 to 67,108,864. A picture or a sound may be in it.",
            ),
        ),
    ]
