"""The bench measures what it says: every answer is verified, CPU and memory are those of the process it names.

No duration is asserted here, and no target: that is what `make bench` prints.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from accounts.keys import new_secret
from bench import __main__ as program
from bench.contenders import CONTENDERS
from bench.cores import only_on, split
from bench.footprint import Footprint, footprint
from bench.load import Broken, Tally, closed_loop, open_loop, percentile
from bench.measure import Figures
from bench.refusals import Refusals, time_refusals, welch
from bench.scale import QUICK, Scale
from bench.site import Running
from bench.streams import crowd
from bench.targets import judge
from bench.translations import Translations, pairs
from bench.wire import Question
from billing.models import Usage
from tests.simulated.process import SimulatedProvider
from tests.simulated.process import start as start_simulated
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model, make_provider

# Everything, as small as it can be.
TINY = Scale(
    connections=(2, 32),
    warm_seconds=0.1,
    seconds=0.4,
    streams=4,
    stream_tokens=30,
    held=4,
    held_tokens=6,
    half_load_seconds=0.5,
    refusal_blocks=2,
    firsts=1,
)


@pytest.fixture(scope="module")
def provider() -> Iterator[SimulatedProvider]:
    """A simulated provider of this file's own: its bill is the count that ours is compared with."""
    with start_simulated() as started:
        yield started


def direct(provider: SimulatedProvider) -> Running:
    """The simulated provider as if it were a contender."""
    return Running(provider.port, provider.process.pid, "", "")


def nothing() -> Footprint:
    """Of no process."""
    return Footprint(0.0, 0)


def ask(provider: SimulatedProvider, model: str, *, streamed: bool = False) -> Question:
    return direct(provider).question(model, streamed=streamed)


def elsewhere(question: Question, model: str, instead: str) -> Question:
    """The same question to a model that does something else; both names are equally long."""
    assert len(model) == len(instead)
    changed = question.request.replace(model.encode(), instead.encode())
    assert changed != question.request
    return replace(question, request=changed)


# --- whole answers ---


def test_every_answer_it_counts_was_given(provider: SimulatedProvider) -> None:
    question = ask(provider, "sim?instant")
    provider.reset()
    rush = uvloop.run(closed_loop(question, 4, 30.0, nothing, warm=0, most=200))
    assert 200 <= rush.answers <= 203  # the last ones were under way when it stopped
    assert rush.failed == 0
    assert len(provider.bill()) >= rush.answers


def test_a_refusal_is_never_counted_as_an_answer(provider: SimulatedProvider) -> None:
    question = elsewhere(ask(provider, "sim?tokens=005"), "sim?tokens=005", "sim?status=503")
    with pytest.raises(Broken, match=r"^0 answers were right and 20 wrong: \{'status 503': 20\}$"):
        uvloop.run(closed_loop(question, 1, 30.0, nothing, warm=0, most=20))


def test_an_answer_of_another_length_is_wrong(provider: SimulatedProvider) -> None:
    question = elsewhere(ask(provider, "sim?tokens=5"), "sim?tokens=5", "sim?tokens=6")
    with pytest.raises(Broken, match=r"^0 answers were right and 20 wrong: .* bytes instead of "):
        uvloop.run(closed_loop(question, 1, 30.0, nothing, warm=0, most=20))


def test_a_connection_lost_amid_an_answer_is_wrong(provider: SimulatedProvider) -> None:
    model, instead = "sim?tokens=00000005", "sim?fault=reset_mid"
    with pytest.raises(Broken, match="connection lost"):
        uvloop.run(closed_loop(elsewhere(ask(provider, model), model, instead), 1, 30.0, nothing, warm=0, most=20))


def test_a_few_wrong_answers_are_told_and_many_break_the_stage() -> None:
    tally = Tally()
    for _ in range(99):
        tally.add(None)
    tally.add("status 503")
    tally.verify()
    assert (tally.good, tally.failed) == (99, 1)
    tally.add("status 503")
    with pytest.raises(Broken):
        tally.verify()


def test_an_open_loop_counts_the_wait_of_questions_that_find_no_line(provider: SimulatedProvider) -> None:
    # Each answer takes 300 ms of silence and there are 32 lines: 107 a second fit, and twice as many come.
    question = ask(provider, "sim?tokens=4&pace=100ms")
    provider.reset()
    latencies = uvloop.run(open_loop(question, 214.0, 1.0, warm=0))
    assert len(latencies) == len(provider.bill())
    assert min(latencies) >= 0.25
    # The last ones found about 107 before them in the queue.
    assert max(latencies) >= 0.75


def test_percentile_is_a_value_that_was_measured() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 0.5) == 50.0
    assert percentile([3.0], 0.99) == 3.0


# --- streams ---


def test_every_stream_is_read_to_its_end_and_every_event_counted(provider: SimulatedProvider) -> None:
    question = ask(provider, "sim?tokens=20&pace=20ms", streamed=True)
    assert question.events == 1 + 20 + 1 + 1  # the role, the tokens, the finish reason, [DONE]
    provider.reset()
    found = uvloop.run(crowd(question, 5, 0.1, nothing))
    bill = provider.bill()
    assert [line["ended"] for line in bill] == ["complete"] * 5
    assert sum(line["events"] for line in bill) == 5 * 23
    assert found.failed == 0
    assert found.fullest.open == 5
    assert found.together
    assert 0 < found.end.events - found.begin.events < 5 * 23


def test_streams_that_are_never_open_at_once_are_measured_as_a_whole(provider: SimulatedProvider) -> None:
    question = ask(provider, "sim?tokens=2", streamed=True)
    found = uvloop.run(crowd(question, 3, 0.6, nothing))
    assert not found.together
    assert found.end.events - found.begin.events == 3 * 5


@pytest.mark.parametrize(
    ("instead", "problem"),
    [
        ("sim?fault=fin_mid@3", r"a stream without b'data: \[DONE\]"),
        ("sim?fault=cut_mid@3", "connection lost"),
        ("sim?tokens=000000006", "events instead of"),
    ],
)
def test_a_stream_that_is_not_whole_is_wrong(provider: SimulatedProvider, instead: str, problem: str) -> None:
    model = "sim?tokens=" + "5".rjust(len(instead) - 11, "0")
    with pytest.raises(Broken, match=problem):
        uvloop.run(crowd(elsewhere(ask(provider, model, streamed=True), model, instead), 2, 0.1, nothing))


# --- processes ---


@contextmanager
def child(code: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python program that prints a line when it has done what it should, and then waits for its input to end."""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


SPEND = """
import sys, time
while time.process_time() < 0.25: pass
"""


def test_a_footprint_is_that_of_a_process_and_its_children_running_or_gone() -> None:
    code = f"""
import subprocess, sys
spend = {SPEND!r}
subprocess.run([sys.executable, "-c", spend], check=True)
stays = subprocess.Popen([sys.executable, "-c", spend + "print(1, flush=True)\\nsys.stdin.read()"], stdout=-1)
stays.stdout.readline()
exec(spend)
held = b"x" * (64 << 20)
print("done", flush=True)
sys.stdin.read()
"""
    with child(code) as process:
        assert said(process) == "done"
        found = footprint(process.pid)
        # Three have spent a quarter of a second each; starting Python costs a little more.
        assert 0.7 <= found.cpu_seconds < 2.0
        assert found.resident_kib > 64 * 1024
        own = footprint(os.getpid())
        assert own.cpu_seconds >= found.cpu_seconds
    with pytest.raises(ProcessLookupError):
        footprint(process.pid)


def test_what_is_started_on_a_core_stays_there_and_we_do_not() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    with only_on(frozenset({core})), child("import os; print(sorted(os.sched_getaffinity(0)), flush=True)") as process:
        assert said(process) == f"[{core}]"
    assert os.sched_getaffinity(0) == before
    cores = split()
    assert cores.contender == min(before)
    assert cores.shared == (len(before) == 1)


# --- refusals ---


def test_welch_is_the_difference_in_terms_of_its_own_scatter() -> None:
    # Means 2 and 5, variances 1 and 4, three of each: -3 / sqrt(1/3 + 4/3).
    assert welch([1.0, 2.0, 3.0], [3.0, 5.0, 7.0]) == pytest.approx(-2.32379, abs=1e-5)
    assert welch([2.0, 2.0], [2.0, 2.0]) == 0
    assert welch([2.0, 2.0], [3.0, 3.0]) == float("inf")


def test_keys_of_every_kind_are_refused_and_one_that_opens_is_noticed(gateway: Gateway, alice: Tenant) -> None:
    keys = {"unknown": [new_secret()], "other": [new_secret()]}
    found = time_refusals(gateway.port, keys, 2)
    assert found.refused == 2 * 15 * 2
    assert set(found.median_us) == {"unknown", "other"}
    assert list(found.t) == ["other and unknown"]
    _, secret = make_key(alice.project)
    synchronize(gateway)
    with pytest.raises(RuntimeError, match="404"):
        time_refusals(gateway.port, {"unknown": keys["unknown"], "alive": [secret]}, 2)


# --- the gateway ---


def test_each_answer_of_the_gateway_is_on_its_books(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim?instant")
    synchronize(gateway)
    running = Running(
        gateway.port,
        gateway.process.pid,
        "",
        "",
        headers={"Authorization": f"Bearer {alice.secret}"},
        models={"sim?instant": model.slug},
    )
    question = running.question("sim?instant", streamed=False)
    rush = uvloop.run(closed_loop(question, 4, 30.0, lambda: footprint(gateway.process.pid), warm=0, most=100))
    assert rush.failed == 0
    assert rush.cpu_seconds > 0
    rows = Usage.objects.filter(organization=alice.organization.id, model=model.slug)
    # One more was asked to learn what an answer is; those cut at the end are there, too.
    until(lambda: rows.count() >= rush.answers + 1)
    assert rows.filter(status="completed", prompt_tokens=8, completion_tokens=16).count() >= rush.answers + 1


def test_targets_are_met_at_their_bounds_and_not_beyond() -> None:
    def verdicts(
        refusals: Refusals | None = None, *, translated: float = 100.0, first: float = 10.0, **figures: Any
    ) -> list[bool | None]:
        at_its_bounds = Figures(
            requests_per_s=1600.0,
            cpu_us_per_request=500.0,
            cpu_us_per_event=75.0,
            added_p50_ms=5.0,
            added_p99_ms=15.0,
            added_p50_ms_at_own_half=5.0,
            added_p99_ms_at_own_half=15.0,
            rss_kib_per_stream=200.0,
            cpu_us_by_connections={200: 400.0, 32: 500.0, 8: 700.0, 1: 1500.0},
        )
        found = {
            "meterline": replace(at_its_bounds, **figures),
            "litellm": Figures(cpu_us_per_request=10_000.0),
            "portkey": Figures(cpu_us_per_request=1_250.0),
            "portkey_newer_node": Figures(skipped="it could not be installed"),
        }
        cpu = {f"{client} over {one}": 50.0 if client == one else translated for client, one in pairs()}
        found_pairs = Translations(cpu, {"openai_chat over openai_chat": 1.0, "openai_chat over google_gemini": first})
        return [target.met for target in judge(found, refusals or Refusals({}, {"a and b": 4.5}, 10), found_pairs)]

    assert verdicts() == [True, True, True, True, True, True, None, True, True, True, True, True, True, True]
    assert verdicts(
        Refusals({}, {"a and b": 0.1, "a and c": 4.6}, 10),
        translated=100.1,
        first=10.1,
        requests_per_s=1599.0,
        cpu_us_per_request=501.0,
        cpu_us_per_event=75.1,
        added_p50_ms=5.1,
        added_p99_ms=15.1,
        added_p50_ms_at_own_half=5.1,
        added_p99_ms_at_own_half=15.1,
        rss_kib_per_stream=200.1,
        cpu_us_by_connections={1: 1500.0, 8: 700.0, 32: 500.0, 200: 530.0},
    ) == [False, False, False, False, False, False, None, False, False, False, False, False, False, False]
    assert judge({}, None, None)[0].met is None


# --- the program ---


@pytest.fixture
def state() -> Iterator[Path]:
    """A folder that every user may pass through, gone after the test: under root the engines are somebody else."""
    folder = Path(tempfile.mkdtemp(prefix="meterline-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_it_measures_the_gateway_and_tells_what_it_did_not(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        results = program.run({"meterline"}, TINY, state)
        # On a machine that is busy with something else, the gateway may refuse what waits too long for its hold.
        if not any("status 503" in problem for problem in results.found["meterline"].problems):
            break
    written = json.loads(results.as_json())
    assert set(CONTENDERS) <= set(written)
    ours = written["meterline"]
    assert ours["problems"] == [] and ours["skipped"] is None
    for figure in ("requests_per_s", "cpu_us_per_request", "database_cpu_us_per_request"):
        assert ours[figure] > 0, figure
    for figure in ("cpu_us_per_event", "added_p50_ms", "added_p99_ms", "rss_kib_per_stream", "core_busy"):
        assert ours[figure] is not None, figure
    assert set(ours["cpu_us_by_connections"]) == {"2", "32"}
    assert "durable settlement" in ours["on"]
    assert written["nginx"]["skipped"] == "not asked for"
    assert written["nginx"]["requests_per_s"] is None
    assert written["refusals"]["refused"] == 2 * 15 * 3
    assert set(written["refusals"]["median_us"]) == {"unknown", "revoked", "expired"}
    for figure in ("cpu_us", "first_ms"):
        assert set(written["translations"][figure]) == {f"{client} over {provider}" for client, provider in pairs()}
    assert {"date", "cpu", "cores", "load", "python"} <= set(written["machine"])
    program.show(results)
    shown = capsys.readouterr().out
    assert "requests a second on one core" in shown
    assert "nginx: skipped, not asked for" in shown


def test_an_unknown_contender_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["--only", "nginx,apache"])
    assert "no contender is called apache" in capsys.readouterr().err


def test_quick_measures_less_of_the_same() -> None:
    assert QUICK.connections == (1, 8, 32, 200)
