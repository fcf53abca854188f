"""Step: expand. Rates by class of service, marginal ones by size of prompt, other currencies, and counts of video,
pictures and seconds.

The defaults are the database's, so that the code from before still adds rates and settles. It does not know of classes,
margins and currencies: such rates are for when none of its processes runs.
"""

from pathlib import Path

import django.core.validators
from django.db import migrations, models

SQL = Path(__file__).resolve().parent.parent / "sql"

ITEMS = [
    ("input", "Input tokens"),
    ("cached_input", "Cached input tokens"),
    ("cache_write_5m", "Cache writes, 5 minutes"),
    ("cache_write_1h", "Cache writes, 1 hour"),
    ("audio_input", "Audio input tokens"),
    ("image_input", "Image input tokens"),
    ("video_input", "Video input tokens"),
    ("output", "Output tokens"),
    ("reasoning", "Reasoning tokens"),
    ("audio_output", "Audio output tokens"),
    ("image_output", "Image output tokens"),
    ("request", "A request"),
    ("web_search", "A web search"),
    ("image", "An image made"),
    ("second", "A second of sound or video"),
]


class Migration(migrations.Migration):
    dependencies = [("billing", "0028_statements")]
    operations = [
        migrations.AddField(
            "rate",
            "service_tier",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="A class of service, such as flex or priority. Empty: the ordinary one.",
                max_length=32,
                validators=[
                    django.core.validators.RegexValidator(
                        "\\A(?!(?:auto|default|standard)\\Z)[a-z0-9_.-]*\\Z",
                        "Lower-case letters, digits, '_', '.' and '-'; of the ordinary class, empty.",
                    )
                ],
            ),
        ),
        migrations.AlterField("rate", "item", models.CharField(choices=ITEMS, max_length=16)),
        migrations.AddConstraint(
            "rate",
            models.UniqueConstraint(
                fields=("version", "item", "above", "service_tier"), name="one_rate_an_item_size_and_class"
            ),
        ),
        migrations.RemoveConstraint("rate", "one_rate_an_item_and_size"),
        migrations.AddField(
            "tariffversion",
            "marginal",
            models.BooleanField(
                db_default=False,
                default=False,
                help_text="Of rates by size of prompt: only for its tokens beyond the size. Off: for the whole request.",
            ),
        ),
        migrations.AddField(
            "tariffversion",
            "currency",
            models.CharField(
                db_default="USD",
                default="USD",
                help_text="That the rates are in. The books are in dollars.",
                max_length=3,
                validators=[
                    django.core.validators.RegexValidator("\\A[A-Z]{3}\\Z", "Three capital letters, such as EUR.")
                ],
            ),
        ),
        migrations.AddField(
            "tariffversion",
            "exchange_rate",
            models.DecimalField(
                db_default=1,
                decimal_places=9,
                default=1,
                help_text="Dollars that one of the currency is worth, while this version is in force. 1 for USD.",
                max_digits=10,
            ),
        ),
        migrations.AddConstraint(
            "tariffversion",
            models.CheckConstraint(
                condition=models.Q(
                    ("exchange_rate__gt", 0), models.Q(models.Q(("currency", "USD"), _negated=True), ("exchange_rate", 1), _connector="OR")
                ),
                name="dollars_are_worth_a_dollar",
            ),
        ),
        *(
            migrations.AddField("usage", name, models.IntegerField(db_default=0, default=0))
            for name in ("video_input_tokens", "image_output_tokens", "images", "seconds")
        ),
        migrations.RunSQL((SQL / "settlement.sql").read_text(), migrations.RunSQL.noop),
    ]
