"""`python -m bench`: measures the contenders, prints a table, and writes the figures to a file."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from bench import __doc__ as purpose
from bench import table, translations
from bench.contenders import CONTENDERS
from bench.cores import only_on, split
from bench.load import Broken
from bench.machine import describe
from bench.measure import Course, Figures, models
from bench.refusals import Refusals, time_refusals
from bench.scale import FULL, QUICK, Scale
from bench.site import HERE, MARK, SCRATCH, Running, Site, Skipped, say
from bench.targets import Target, judge
from bench.translations import Translations
from deploy.processes import bearers, end_all
from deploy.state import FolderLock, StartError
from tests.simulated import process as simulated

LATEST = HERE / "results" / "latest.json"


@dataclass
class Results:
    """Everything one run has found."""

    machine: dict[str, object]
    found: dict[str, Figures] = field(default_factory=dict)
    refusals: Refusals | None = None
    translations: Translations | None = None
    targets: list[Target] = field(default_factory=list)

    def as_json(self) -> str:
        """For the file: a key a contender, beside the machine, the refusals and the targets."""
        shown = {
            "machine": self.machine,
            **{name: asdict(figures) for name, figures in self.found.items()},
            "refusals": asdict(self.refusals) if self.refusals else None,
            "translations": asdict(self.translations) if self.translations else None,
            "targets": [asdict(target) for target in self.targets],
        }
        return json.dumps(shown, indent=2) + "\n"


def run(names: Iterable[str], scale: Scale, state: Path) -> Results:
    """Measures the contenders called `names` one after another; the others are marked as skipped.

    `state` holds logs and the engines' data. Raises `StateInUse` while another bench is at work there.
    """
    cores = split()
    state.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(state / "bench.lock")
    try:
        end_all(lambda: bearers(f"{MARK}={state}"))  # what a killed bench has left
        results = Results(describe(cores))
        with only_on(cores.others), simulated.start() as provider:
            site = Site(state, cores, provider, models(scale))
            direct = Running(provider.port, provider.process.pid, "", "")
            for name in CONTENDERS:
                results.found[name] = _measure(name, site, direct, scale, results, asked=name in names)
    finally:
        lock.release()
    results.targets = judge(results.found, results.refusals, results.translations)
    return results


def _measure(name: str, site: Site, direct: Running, scale: Scale, results: Results, *, asked: bool) -> Figures:
    if not asked:
        return Figures(skipped="not asked for")
    say(f"{name}")
    try:
        with CONTENDERS[name](site) as running:
            figures = Course(name, running, direct, site, scale).run()
            if running.refused:
                say(f"  {name}: refusals")
                results.refusals = time_refusals(running.port, running.refused, scale.refusal_blocks)
            if running.spoken:
                try:
                    results.translations = translations.measure(running, site.simulated, scale)
                except (Broken, RuntimeError) as broken:
                    figures.problems.append(f"translations: {broken}")
    except Skipped as skipped:
        say(f"  {name}: skipped, {skipped}")
        return Figures(skipped=str(skipped))
    return figures


def show(results: Results) -> None:
    """Prints everything."""
    machine = results.machine
    print(
        f"\n{machine['cpu']}, {machine['cores']} cores; contenders on core {machine['contender_core']}, the rest on "
        f"{machine['other_cores']}; load before: {machine['load']}\n"
    )
    sections = [
        table.comparison(results.found),
        table.micro(results.refusals) if results.refusals else iter(()),
        table.pairs(results.translations) if results.translations else iter(()),
        table.verdicts(results.targets),
        table.notes(results.found),
    ]
    for section in sections:
        lines = list(section)
        if lines:
            print("\n".join(lines), end="\n\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=purpose)
    parser.add_argument("--quick", action="store_true", help="less of everything, Meterline and nginx alone")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(CONTENDERS)}; default: all")
    parser.add_argument("--output", type=Path, default=LATEST, help="where the figures go")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else ["meterline", "nginx"] if options.quick else list(CONTENDERS)
    if unknown := set(names) - set(CONTENDERS):
        parser.error(f"no contender is called {', '.join(sorted(unknown))}")
    # Raised where we are, so that everything that was started is stopped on the way out.
    signal.signal(signal.SIGTERM, _leave)
    begun = time.monotonic()
    try:
        results = run(names, QUICK if options.quick else FULL, SCRATCH / "state")
    except StartError as error:
        print(error, file=sys.stderr)
        return 1
    results.machine["scale"] = "quick" if options.quick else "full"
    results.machine["seconds"] = round(time.monotonic() - begun)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(results.as_json())
    show(results)
    print(f"The figures are in {options.output}.")
    return 0


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
