"""The table of pairs counts what ran, and cannot be whole without all of it."""

from tests.pairs.clients import CLIENTS
from tests.pairs.providers import PROVIDERS
from tests.pairs.table import CASES, Recorder, is_whole, last_line, markdown
from tests.pairs.test_pairs import SCENES


def recorded(cases: list[str]) -> Recorder:
    recorder = Recorder()
    for client in CLIENTS:
        for provider in PROVIDERS:
            for case in cases:
                recorder.cells[f"{client}{provider}{case}"] = client, provider, case
    recorder.passed = set(recorder.cells)
    return recorder


def test_the_last_line_counts() -> None:
    recorder = recorded(["text", "image"])
    recorder.failed = {"openai_chatopenai_chattext", "elsewhere"}  # a test of no cell that failed counts, too
    recorder.passed.discard("google_geminigoogle_geminiimage")  # it was skipped: nothing was proved
    assert last_line(recorder) == "30 passed, 3 failed"
    assert "| image | 1 of 1 | 1 of 1 | 1 of 1 | 0 of 1 |" in markdown(recorder)
    assert markdown(recorder).endswith("\n30 passed, 3 failed.\n")


def test_a_run_of_some_cases_is_not_the_whole() -> None:
    assert len(SCENES) < CASES
    assert not is_whole(recorded(list(SCENES)))
    assert is_whole(recorded([str(case) for case in range(CASES)]))
