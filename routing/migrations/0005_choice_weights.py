"""How the gateway chooses a model: the weights of the choice, with what they are until an operator changes them.

Also what a provider's signed thoughts are called.
"""

from typing import Any

from django.db import migrations, models

from accounts.watching import watch

# A low complexity wants the cheapest and a high one the strongest, so these outweigh all the rest.
SEEDS = {
    "balanced": {
        "quality": 1, "price": 1, "latency": 0.5, "availability": 0.5, "parameters": 1, "demand": 1, "task": 0.5,
    },
    "performance": {"quality": 3, "latency": 0.5, "availability": 0.5, "parameters": 1, "demand": 1, "task": 0.5},
    "price": {
        "quality": 0.25, "price": 3, "latency": 0.25, "availability": 0.5, "parameters": 1, "demand": 0.5, "task": 0.5,
    },
    "low": {"price": 100},
    "high": {"quality": 100},
}  # fmt: skip


def seed(apps: Any, editor: Any) -> None:
    """Writes them."""
    weight = apps.get_model("routing", "ChoiceWeight")
    weight.objects.bulk_create(
        weight(word=word, term=term, weight=value) for word, terms in SEEDS.items() for term, value in terms.items()
    )


class Migration(migrations.Migration):
    dependencies = [("routing", "0004_policies")]

    operations = [
        migrations.AddField(
            model_name="provider",
            name="reasoning_format",
            field=models.CharField(
                blank=True,
                default="",
                help_text="What its entries of reasoning_details say in `format`; it is not sent those that say another. "
                "Empty: not known, and it is sent all.",
                max_length=64,
            ),
        ),
        migrations.CreateModel(
            name="ChoiceWeight",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "word",
                    models.CharField(
                        choices=[
                            ("balanced", "Balanced"),
                            ("performance", "Performance"),
                            ("price", "Price"),
                            ("low", "Low complexity"),
                            ("medium", "Medium complexity"),
                            ("high", "High complexity"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "term",
                    models.CharField(
                        choices=[
                            ("quality", "Quality"),
                            ("price", "Price"),
                            ("latency", "Latency"),
                            ("availability", "Availability"),
                            ("parameters", "Parameters"),
                            ("demand", "Demand"),
                            ("task", "Task"),
                        ],
                        max_length=16,
                    ),
                ),
                ("weight", models.FloatField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("word", "term"), name="one_weight_each")],
            },
        ),
        migrations.RunPython(seed, migrations.RunPython.noop),
        watch("routing_choiceweight", "id"),
    ]
