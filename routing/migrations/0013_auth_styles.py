"""Step: expand. Signatures of AWS, Google's service accounts, Azure's deployments."""

from django.core.validators import RegexValidator
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("routing", "0012_protocols")]
    operations = [
        migrations.AddField(
            "provider",
            "api_version",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Of Azure: sent with each call as api-version.",
                max_length=32,
                validators=[
                    RegexValidator(
                        r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z", "Letters, digits, dots, dashes and underscores."
                    )
                ],
            ),
        ),
        migrations.AddField(
            "provider",
            "region",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Of AWS: that its signatures are for.",
                max_length=32,
                validators=[RegexValidator(r"\A[a-z]+(-[a-z0-9]+)+\Z", "Write it like us-east-1.")],
            ),
        ),
        migrations.AlterField(
            "provider",
            "auth_style",
            models.CharField(
                choices=[
                    ("bearer", "Authorization: Bearer"),
                    ("api-key", "api-key"),
                    ("x-api-key", "x-api-key"),
                    ("x-goog-api-key", "x-goog-api-key"),
                    ("sigv4", "AWS signature, with an access key"),
                    ("service-account", "Google service account"),
                    ("none", "None"),
                ],
                default="bearer",
                help_text="What a credential then is: the key itself; ID:SECRET, or ID:SECRET:SESSION_TOKEN, of an AWS "
                "access key; the whole JSON document of a Google service account's key.",
                max_length=16,
            ),
        ),
        migrations.AlterField(
            "provider",
            "variant",
            models.CharField(
                blank=True,
                choices=[
                    ("", "As its maker has it"),
                    ("invoke", "AWS Bedrock: InvokeModel"),
                    ("raw_predict", "Google Vertex: rawPredict"),
                    ("deployments", "Azure OpenAI: deployments"),
                ],
                db_default="",
                default="",
                help_text="How the service that sells it is called, where that differs from its maker's.",
                max_length=32,
            ),
        ),
    ]
