"""Step: expand. Further protocols, and how the services that sell them are called."""

from django.db import migrations, models

import routing.models.provider


class Migration(migrations.Migration):
    dependencies = [("routing", "0011_whose_failures")]
    operations = [
        migrations.AddField(
            "provider",
            "variant",
            models.CharField(
                blank=True,
                choices=[
                    ("", "As its maker has it"),
                    ("invoke", "AWS Bedrock: InvokeModel"),
                    ("raw_predict", "Google Vertex: rawPredict"),
                ],
                db_default="",
                default="",
                help_text="Of Anthropic Messages: how the service that sells it is called.",
                max_length=32,
            ),
        ),
        migrations.AlterField(
            "provider",
            "protocol",
            models.CharField(
                choices=[
                    ("openai_chat", "OpenAI chat completions"),
                    ("openai_responses", "OpenAI Responses"),
                    ("anthropic_messages", "Anthropic Messages"),
                    ("google_gemini", "Google generateContent"),
                ],
                default="openai_chat",
                help_text="What it is asked in. Clients may speak any of them, whatever this one is.",
                max_length=32,
            ),
        ),
        migrations.AlterField(
            "provider",
            "base_url",
            models.CharField(
                help_text="Up to, not including, /chat/completions, /responses, /messages, /models, /model or /publishers.",
                max_length=300,
                validators=[routing.models.provider.validate_base_url],
            ),
        ),
    ]
