"""Policies in a configuration file: five levels, told apart by where they stand, checked as in the console."""

from pathlib import Path

import pytest

from gateway.configuration.export import export
from routing.models import ChoiceWeight, Level, Model, Policy
from tests.configuration.desk import Desk, empty_everything, undone

FILE = """
    policy: {strategy: least_latency, max_attempts: 4}
    organizations:
      NAME:
        name: Acme
        projects:
          main:
            name: Main
            policy:
              strategy: order
              providers: [NAME-b, NAME-a/fast]
              fallback: false
              first_byte_timeout: 2.5
              continues_streams: true
            keys:
              ci:
                policy: {only_providers: [NAME-a], refuses_training: true, fallback: NAME/deep}
    providers:
      NAME-a: {name: A, base_url: "https://a.example/v1", auth_style: none}
      NAME-b: {name: B, base_url: "https://b.example/v1", auth_style: none}
    models:
      NAME/swift:
        name: Swift
        policy: {factor: price, fallback: NAME/deep}
      NAME/deep: {name: Deep, aliases: [NAME/deeper]}
"""
POLICIES = {
    "+ policy: strategy least_latency, max_attempts 4",
    "+ policy model NAME/swift: factor price, fallback NAME/deep",
    "+ policy project NAME/main: strategy order, providers [NAME-b, NAME-a/fast], fallback false, "
    "first_byte_timeout 2.5, continues_streams true",
    "+ policy key NAME/main/ci: only_providers [NAME-a], refuses_training true, fallback NAME/deep",
}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_it_works(desk: Desk) -> None:
    with undone():
        empty_everything()
        assert {line for line in desk.lines(FILE) if "policy" in line} == POLICIES
        everything = Policy.objects.get(level="global")
        assert (everything.strategy, everything.fallback, everything.max_attempts) == ("least_latency", "", 4)
        project = Policy.objects.get(project__organization__slug=desk.slug)
        assert (project.level, project.key, project.model) == (Level.PROJECT, None, None)
        assert (project.strategy, project.fallback, project.first_byte_timeout) == ("order", "false", 2.5)
        assert (project.providers, project.only_providers) == ([f"{desk.slug}-b", f"{desk.slug}-a/fast"], None)
        assert (project.continues_streams, project.refuses_training, project.total_timeout) == (True, False, None)
        key = Policy.objects.get(key__project__organization__slug=desk.slug)
        assert (key.level, key.only_providers, key.refuses_training) == (Level.KEY, [f"{desk.slug}-a"], True)
        model = Policy.objects.get(model__slug=f"{desk.slug}/swift")
        assert (model.level, model.factor, model.fallback) == (Level.MODEL, "price", f"{desk.slug}/deep")


def test_a_second_time_changes_nothing_and_an_export_is_what_it_was_made_from(desk: Desk) -> None:
    with undone():
        empty_everything()
        desk.apply(FILE)
        assert desk.lines(FILE) == []
        first = export()
        assert desk.lines(first) == []
        assert "fallback: false" in first and "strategy: least_latency" in first
        empty_everything()
        desk.apply(first)
        assert export() == first
        assert Policy.objects.count() == 4
        assert "least_latency" not in export(desk.slug) and "strategy: order" in export(desk.slug)


def test_it_changes_what_the_file_names_and_null_removes(desk: Desk) -> None:
    with undone():
        empty_everything()
        desk.apply(FILE)
        changed = desk.lines("""
            policy: null
            organizations:
              NAME:
                projects:
                  main:
                    policy: {fallback: true, first_byte_timeout: null}
                    keys: {ci: {policy: null}}
            models:
              NAME/deep: {policy: null}
        """)
        assert changed == [
            "- policy",
            "- policy key NAME/main/ci",
            "~ policy project NAME/main: fallback false -> true, first_byte_timeout 2.5 -> none",
        ]
        assert set(Policy.objects.values_list("level", flat=True)) == {"model", "project"}
        assert Policy.objects.get(level="project").providers == [f"{desk.slug}-b", f"{desk.slug}-a/fast"]


REFUSED = {
    "an unknown provider": (
        "{providers: [NAME-a, NAME-z]}",
        "policy.providers: There is no provider NAME-z.",
    ),
    "an unknown name to fall back to": (
        "{fallback: NAME/nothing}",
        "policy.fallback: There is no provider and no model NAME/nothing. Write true, false, or the slug of one.",
    ),
    "an order of nobody": ("{strategy: order}", "policy: List the providers in their order"),
    "an empty list": ("{only_providers: []}", "policy.only_providers: Name at least one provider"),
    "no attempt": ("{max_attempts: 0}", "policy.max_attempts: Ensure this value is greater than or equal to 1."),
    "no time": ("{total_timeout: 0}", "policy.total_timeout: expected more than 0 seconds"),
    "a word outside the list": ("{strategy: fastest}", "policy.strategy: expected one of '', priority, order"),
    "yes for true": ("{fallback: yes}", "policy.fallback: expected true or false, got 'yes'"),
    "an unknown key": ("{stratgy: order}", "policy.stratgy: unknown key (did you mean strategy?)"),
    "itself": (
        "{fallback: NAME/swift}",
        "policy.fallback: Models fall back in a circle: NAME/swift -> NAME/swift. Change one of them.",
    ),
}


@pytest.mark.parametrize("policy, words", REFUSED.values(), ids=REFUSED)
def test_it_refuses(policy: str, words: str, desk: Desk) -> None:
    with undone():
        empty_everything()
        desk.apply(FILE)
        before = list(Policy.objects.order_by("pk").values())
        told = desk.refused(f"models: {{NAME/swift: {{max_output: 7, policy: {policy}}}}}")
        assert "meterline.yaml, line 1: models.NAME/swift." in told and words in told
        assert list(Policy.objects.order_by("pk").values()) == before
        assert Model.objects.get(slug=f"{desk.slug}/swift").max_output == 4096


def test_it_names_a_circle_and_takes_a_chain(desk: Desk) -> None:
    with undone():
        empty_everything()
        desk.apply(FILE)
        told = desk.refused("models: {NAME/deep: {policy: {fallback: NAME/swift}}}")
        circle = "NAME/deep -> NAME/swift -> NAME/deep"
        assert f"models.NAME/deep.policy.fallback: Models fall back in a circle: {circle}." in told
        assert not Policy.objects.filter(model__slug=f"{desk.slug}/deep").exists()
        turned = desk.lines("""
            models:
              NAME/deep: {policy: {fallback: NAME/swift}}
              NAME/swift: {policy: {fallback: ""}}
        """)
        assert turned == [
            "+ policy model NAME/deep: fallback NAME/swift",
            "~ policy model NAME/swift: fallback NAME/deep -> ''",
        ]


def test_a_second_policy_for_everything_changes_the_first(desk: Desk) -> None:
    with undone():
        empty_everything()
        desk.apply("policy: {max_attempts: 2}")
        assert desk.lines("policy: {max_attempts: 5}") == ["~ policy: max_attempts 2 -> 5"]
        assert Policy.objects.get().max_attempts == 5


def test_the_weights_of_the_choice(desk: Desk) -> None:
    with undone():
        empty_everything()
        assert desk.lines("choice_weights: {balanced: {quality: 1, price: 0.5}, high: {quality: 100}}") == [
            "+ choice weight balanced quality: 1",
            "+ choice weight balanced price: 0.5",
            "+ choice weight high quality: 100",
        ]
        changed = "choice_weights: {balanced: {quality: 2.25, price: null}, high: {price: null}}"
        assert desk.lines(changed) == [
            "- choice weight balanced price",
            "~ choice weight balanced quality: weight 1 -> 2.25",
        ]
        assert desk.lines(changed) == []
        first = export()
        assert "choice_weights:\n  balanced:\n    quality: 2.25\n  high:\n    quality: 100\n" in first
        empty_everything()
        desk.apply(first)
        assert export() == first
        before = list(ChoiceWeight.objects.order_by("pk").values())
        for wrong, words in {
            "choice_weights: {fast: {quality: 1}}": "choice_weights.fast: unknown key",
            "choice_weights: {low: {speed: 1}}": "choice_weights.low.speed: unknown key",
            "choice_weights: {low: {price: -1}}": "choice_weights.low.price: expected a decimal, 0 or more",
            "choice_weights: {low: {price: .inf}}": "choice_weights.low.price: expected a decimal, 0 or more",
        }.items():
            assert words in desk.refused(wrong)
        assert list(ChoiceWeight.objects.order_by("pk").values()) == before
