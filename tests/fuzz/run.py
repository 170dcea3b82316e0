"""Try hostile inputs; report tracebacks, hangs, too much memory and what is left behind.

``python tests/fuzz/run.py --minutes 30 --seed 1`` first tries the corpus, which holds what once
failed, then new inputs of every kind in turn. Every case runs in a child process with limits. A
fault is printed with the command that repeats it, and its input is kept below ``out/fuzz``. Put
such a file into ``tests/fuzz/corpus/KIND/`` when the fault is mended; ``make test`` then tries it.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.targets import LIMITS, TARGETS, Case, faults_of, make_case
from helpers.forked import MIB, run_forked, warm_up

CORPUS = Path(__file__).parent / "corpus"


def corpus(kinds: list[str]) -> Iterator[Case]:
    """Yield the inputs that once failed."""
    for kind in kinds:
        for path in sorted((CORPUS / kind).glob("*")):
            suffix = path.suffix.removeprefix(".")
            yield Case(kind=kind, label=path.name, data=path.read_bytes(), suffix=suffix)


def new_cases(kinds: list[str], seed: int) -> Iterator[Case]:
    """Yield inputs of every kind in turn, without end."""
    for number in count():
        for kind in kinds:
            yield make_case(kind, seed * 10_000_000 + number)


def try_case(case: Case, kept: Path) -> tuple[list[str], int]:
    """Run a case; return what is wrong and its peak of memory. Keep the input of a fault."""
    folder = Path(tempfile.mkdtemp(prefix="musigma-fuzz-"))
    try:
        ended = run_forked(lambda: TARGETS[case.kind].use(case, folder), folder, LIMITS)
        faults = faults_of(case, folder, ended)
        if faults:
            kept.mkdir(parents=True, exist_ok=True)
            (kept / f"{case.kind}-{case.label}.{case.suffix}").write_bytes(case.data)
            (kept / f"{case.kind}-{case.label}.stderr").write_text(ended.err)
        return faults, ended.peak
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Try inputs until the time is over, or as many as were asked for; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--cases", type=int, help="new inputs of each kind, instead of minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", choices=TARGETS, help="only this kind")
    parser.add_argument("--case", type=int, help="the one case with this number")
    parser.add_argument(
        "--keep", type=Path, default=Path("out/fuzz"), help="folder for inputs of faults"
    )
    arguments = parser.parse_args()
    warm_up()
    kinds = arguments.kind or list(TARGETS)
    if arguments.case is not None:
        cases: Iterator[Case] = iter([make_case(kind, arguments.case) for kind in kinds])
    else:
        cases = chain(corpus(kinds), new_cases(kinds, arguments.seed))
    return report(cases, kinds, arguments)


def report(cases: Iterator[Case], kinds: list[str], arguments: argparse.Namespace) -> int:
    """Try cases, print what fails and a summary, and return the exit code."""
    end = time.monotonic() + 60 * arguments.minutes
    tried: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    new: Counter[str] = Counter()
    peak = 0
    for case in cases:
        is_new = case.label.isdigit()
        if is_new and arguments.cases is not None:
            if min(new[kind] for kind in kinds) >= arguments.cases:
                break
        elif is_new and arguments.case is None and time.monotonic() > end:
            break
        faults, case_peak = try_case(case, arguments.keep)
        tried[case.kind] += 1
        new[case.kind] += is_new
        peak = max(peak, case_peak)
        if faults:
            failed[case.kind] += 1
            again = f"--kind {case.kind} --case {case.label}" if is_new else case.label
            print(f"FAULT {case.kind}: {'; '.join(faults)}  [{again}]", flush=True)
    for kind in kinds:
        print(f"{kind}: {tried[kind]} tried, {failed[kind]} with faults")
    print(f"largest memory of a case: {peak // MIB} MiB")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
