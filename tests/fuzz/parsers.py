"""Fuzz the parsers: `python tests/fuzz/parsers.py [--seconds 60] [--target exposition|otlp|trace_file]`.

Coverage-guided with atheris where that is installed (pip install 'tritonwatch[fuzz]'), else by mutation. Seeds
are recorded bodies of real servers (../shared/captures) where they are, and a few of our own. Prints how many
inputs ran; ends with 1 and the input at the first broken promise.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "exporters")]

try:
    import atheris
except ImportError:
    atheris = None

from prometheus_client.parser import text_string_to_metric_families

from support.otlp import as_json, as_protobuf, request
from triton_exporter.distribution.otlp import Assembler, OtlpError, decode_json, decode_protobuf
from triton_exporter.distribution.trace_file import timelines
from triton_exporter.parse import Parser, parse

CAPTURES = ROOT.parent / "shared" / "captures"
OWN = b'# TYPE a counter\na{b="c \\" \\n"} 1\na{b="d"} 2e3 17\n# TYPE h histogram\nh_bucket{le="+Inf"} NaN\n'
MAX_BYTES = 4096


def exposition(data: bytes) -> None:
    """What is kept is clean, is read as prometheus_client reads it, and memory changes nothing."""
    kept = parse(data)
    again = parse(kept.text.encode())
    assert not again.faults, again.faults
    found = [
        (s.name, sorted(s.labels.items()), repr(v)) for f in kept.families.values() for s, v in f.samples()
    ]
    assert found == [
        (s.name, sorted(s.labels.items()), repr(v)) for f in again.families.values() for s, v in f.samples()
    ]
    if b"__name__" in data:
        return  # prometheus_client takes every label that begins like the reserved one for it
    theirs = sum(len(family.samples) for family in text_string_to_metric_families(kept.text))
    assert theirs == len(found), (theirs, len(found))
    remembering = Parser()
    remembering.parse(data[: len(data) // 2] + b"\n")
    assert remembering.parse(data).text == kept.text


def otlp(data: bytes) -> None:
    """A body is spans or an error of ours, and requests make sense."""
    lost: Counter[str] = Counter()
    assembler = Assembler(lambda reason, count: lost.update({reason: count}))
    for decode in (decode_json, decode_protobuf):
        try:
            requests = assembler.take(decode(data), 0)
        except OtlpError:
            continue
        assert all(one.request_seconds >= 0 and one.ended > 0 for one in requests)


def trace_file(data: bytes) -> None:
    """Any JSON is read or passed over."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    for line in timelines(document, 0):
        line.request()


TARGETS: dict[str, Callable[[bytes], None]] = {
    "exposition": exposition,
    "otlp": otlp,
    "trace_file": trace_file,
}


def seeds(target: str) -> list[bytes]:
    """Recorded bodies cut to pieces of whole lines, and a few made here."""
    if target == "otlp":
        spans = request("m", 1_700_000_000.0, 0.1, 0.5)
        return [as_json(*spans), as_protobuf(*spans)]
    if target == "trace_file":
        record = {"id": 1, "model_name": "m", "model_version": 1, "parent_id": 2}
        stamps = [{"name": name, "ns": 5} for name in ("REQUEST_START", "QUEUE_START", "REQUEST_END")]
        return [json.dumps([record, {"id": 1, "timestamps": stamps}]).encode()]
    found = [OWN]
    for path in sorted([*CAPTURES.glob("triton/*metrics*"), *CAPTURES.glob("dcgm/*.prom")]):
        body = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = body.splitlines(keepends=True)
        found += [b"".join(lines[at : at + 30])[:MAX_BYTES] for at in range(0, min(len(lines), 900), 150)]
    return found


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


def by_mutation(target: str, seconds: float) -> int:
    """Mutate seeds until the time is over; returns how many ran."""
    rng, corpus, ran, ends = random.Random(0), seeds(target), 0, time.monotonic() + seconds
    while time.monotonic() < ends:
        data = mutated(rng, corpus)
        try:
            TARGETS[target](data)
        except Exception:
            print(f"{target}: broken by {data!r}", file=sys.stderr)
            raise
        ran += 1
    return ran


def with_atheris(target: str, seconds: float) -> int:
    """Let atheris look for new paths, in a process of its own; returns its exit status."""
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds(target)):
            (Path(corpus) / str(number)).write_bytes(seed)
        command = [sys.executable, __file__, "--inside", "--target", target]
        limits = [f"-max_total_time={seconds:.0f}", f"-max_len={MAX_BYTES}", "-print_final_stats=1"]
        return subprocess.run([*command, "--", corpus, *limits]).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--no-atheris", action="store_true", help="mutate, even where atheris is installed")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    chosen = options.target or list(TARGETS)
    if options.inside:
        atheris.instrument_all()
        atheris.Setup([sys.argv[0], *(one for one in rest if one != "--")], TARGETS[chosen[0]])
        atheris.Fuzz()
        return 0
    for target in chosen:
        if atheris is not None and not options.no_atheris:
            status = with_atheris(target, options.seconds)
            if status:
                return 1
        else:
            print(f"{target}: {by_mutation(target, options.seconds)} inputs by mutation, no promise broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
