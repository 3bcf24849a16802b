"""Fuzz the parsers: `python tests/fuzz/parsers.py [--seconds 60] [--target NAME]`, or `make fuzz`.

Coverage-guided with atheris where that is installed (pip install 'tritonwatch[fuzz]'), else by mutation. Prints
how many inputs ran; exits with 1 and the input at the first broken property (see `promises`).
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "exporters")]

try:
    import atheris
except ImportError:
    atheris = None

from fuzz.promises import MAX_BYTES, TARGETS, seeds

_MAX_SECONDS = 20
"""An input that takes longer is a finding too."""


def mutated(rng: random.Random, corpus: list[bytes]) -> bytes:
    """One seed with a few bytes flipped, cut, doubled, swapped or taken from another seed."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.randint(1, 6)):
        at, length = rng.randrange(len(data) + 1), rng.randint(1, 20)
        other = rng.choice(corpus)
        start = rng.randrange(len(other))
        data[at : at + rng.choice((0, length))] = rng.choice(
            (
                rng.randbytes(rng.randint(0, 3)),
                bytes([rng.choice(b'{}"\\,= \n\t#1.eE+-')]),
                bytes(data[at : at + length]) * 2,
                other[start : start + length],
                b"",
            )
        )
    return bytes(data[:MAX_BYTES])


def by_mutation(target: str, seconds: float, min_inputs: int = 0) -> int:
    """Mutate seeds until the time has passed and `min_inputs` have run; return how many ran."""
    rng, corpus, ran, ends = random.Random(0), seeds(target), 0, time.monotonic() + seconds
    while ran < min_inputs or time.monotonic() < ends:
        data = mutated(rng, corpus)
        try:
            TARGETS[target](data)
        except Exception:
            print(f"{target}: broken by {data!r}", file=sys.stderr)
            raise
        ran += 1
    return ran


def with_atheris(target: str, seconds: float) -> int | None:
    """Let atheris search new paths, in a process of its own; return how many ran, None when one broke."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, seed in enumerate(seeds(target)):
            (corpus / str(number)).write_bytes(seed)
        command = [sys.executable, __file__, "--inside", "--target", target]
        limits = [
            f"-max_total_time={seconds:.0f}",
            f"-max_len={MAX_BYTES}",
            f"-timeout={_MAX_SECONDS}",
            f"-artifact_prefix={folder}/",
            "-print_final_stats=1",
        ]
        ended = subprocess.run([*command, "--", str(corpus), *limits], capture_output=True, text=True)
        ran = re.search(r"number_of_executed_units:\s*(\d+)", ended.stderr)
        if ended.returncode == 0 and ran:
            return int(ran[1])
        printed = [line for line in (ended.stdout + ended.stderr).splitlines() if not line.startswith("#")]
        print("\n".join(printed[-60:]), file=sys.stderr)
        for path in sorted(Path(folder).glob("*-*")):
            print(f"{target}: broken by {path.read_bytes()!r}", file=sys.stderr)
        return None


def _inside(target: str, arguments: list[str]) -> None:
    """Be the process that atheris fuzzes in; does not return."""
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *(argument for argument in arguments if argument != "--")], TARGETS[target])
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--no-atheris", action="store_true", help="mutate, even where atheris is installed")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    chosen = options.target or list(TARGETS)
    if options.inside:
        _inside(chosen[0], rest)
    for target in chosen:
        if atheris is not None and not options.no_atheris:
            ran, how = with_atheris(target, options.seconds), "atheris"
        else:
            ran, how = by_mutation(target, options.seconds), "mutation"
        if ran is None:
            return 1
        print(f"{target}: {ran} inputs by {how}, no promise broken", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
