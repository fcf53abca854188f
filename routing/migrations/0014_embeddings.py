"""Step: expand. A model may make embeddings."""

import django.contrib.postgres.fields
from django.db import migrations, models

import routing.models.model

READABLE = [("text", "Text"), ("image", "Image"), ("audio", "Audio"), ("video", "Video"), ("file", "File")]


class Migration(migrations.Migration):
    dependencies = [("routing", "0013_auth_styles")]
    operations = [
        migrations.AlterField(
            "model",
            "output_modalities",
            django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(choices=[*READABLE, ("embeddings", "Embeddings")], max_length=16),
                default=routing.models.model.text_only,
                help_text="What it makes. Embeddings: it is asked at /v1/embeddings, and a tariff of it needs no output rate.",
                size=None,
            ),
        ),
        migrations.AlterField(
            "offer",
            "supported_parameters",
            django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=64),
                blank=True,
                help_text="Empty: the model's. `prompt`: it has /completions, too; `suffix`: which fill gaps.",
                null=True,
                size=None,
            ),
        ),
    ]
