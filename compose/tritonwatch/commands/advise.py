"""`tritonwatch advise`: at what traffic each objective breaks, and which change of a configuration helps."""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict

from triton_exporter.common.duration import in_words
from triton_exporter.common.printable import printable
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.advise.advice import advise
from triton_slo.advise.measured import Measured, read_models
from triton_slo.advise.report import checked_text, compare, document, read, text
from triton_slo.advise.watch import Watch
from triton_slo.objective.model import Objective
from triton_slo.prometheus import WARNS
from tritonwatch import access, files
from tritonwatch.arguments import text_of
from tritonwatch.objective_files import load
from tritonwatch.parser import did_you_mean

_LOG = logging.getLogger(__name__)
_MISSED = 3
"""Readings in a row that may fail before --watch no longer exposes the last values."""


def run(args: argparse.Namespace) -> int:
    """Print the advice, or how earlier advice came true, or serve the headroom."""
    if args.watch or args.listen:
        return _watch(args)
    if args.check:
        return _check(args)
    models, end = _measured(args, _warn)
    advice = [each for measured in models for each in advise(measured, args.changed)]
    advice.sort(key=lambda each: each.order)
    print(json.dumps(document(advice, end), indent=2) if args.json else _printable(map(text, advice)))
    return 0


def _check(args: argparse.Namespace) -> int:
    if args.changed:
        raise ProblemsError(Problem("--check", "compares what was predicted", "leave out --if"))
    saved = read(str(args.check), text_of(args.check))
    models, _ = _measured(args, _warn)
    known = {(measured.model, measured.version): measured for measured in models}
    comparisons = []
    for advice in saved.advice:
        key, slo = (advice.model, advice.version), advice.promise.slo
        if key in known and (not args.objective or slo in args.objective):
            comparisons.append(compare(advice, saved.at, known[key]))
    if not comparisons:
        raise ProblemsError(
            Problem(f"--check {args.check}", "has no prediction of these models and objectives"), code=1
        )
    if args.json:
        print(json.dumps({"checked": [asdict(each) for each in comparisons]}, indent=2))
    else:
        print(_printable(map(checked_text, comparisons)))
    return 3 if any(each.came_true is False for each in comparisons) else 0


def _printable(texts: Iterable[str]) -> str:
    return "\n".join(map(printable, "\n\n".join(texts).split("\n")))


def _warn(message: str) -> None:
    print(f"tritonwatch advise: {printable(message)}", file=sys.stderr)


def _watch(args: argparse.Namespace) -> int:
    """Serve the headroom until SIGTERM or Ctrl-C."""
    from triton_exporter.exposition.write import TEXT, text_pieces
    from triton_exporter.http.server import Response, Server, routed

    if not (args.watch and args.listen):
        raise ProblemsError(Problem("--watch", "needs --listen, and --listen needs --watch", "give both"))
    for option in ("changed", "at", "check", "json"):
        if getattr(args, option):
            name = "--if" if option == "changed" else f"--{option}"
            raise ProblemsError(Problem(name, "is of no use with --watch", "leave it out"))
    _objectives(args)  # a mistake in a file ends the command now; a later one is logged
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    watch = Watch(_MISSED * args.watch)
    host, port = args.listen
    page = {"GET /metrics": lambda _: Response(b"".join(text_pieces(watch.families(time.time()))), TEXT)}
    try:
        server = Server(host, port, routed(page))
    except OSError as error:
        problem = Problem(
            f"--listen {host}:{port}", f"cannot be used: {error.strerror}", "choose another address"
        )
        raise ProblemsError(problem, code=1) from error
    with server:
        threading.Thread(target=_update, args=(watch, args), daemon=True).start()
        print(f"serving {server.url}/metrics for {args.prometheus}", file=sys.stderr, flush=True)
        server.serve_until_signal()
    return 0


def _update(watch: Watch, args: argparse.Namespace) -> None:
    """Measure again and again; what Prometheus or a file has wrong is logged, and the last values get old."""
    while True:
        began, before = time.thread_time(), watch.computations
        try:
            models, _ = _measured(args, lambda message: _LOG.warning("%s", printable(message)))
            watch.update(models, time.time())
        except ProblemsError as error:
            _LOG.error("%s", printable(str(error)))
        except Exception:  # noqa: BLE001 - the boundary: a defect must not end the thread
            _LOG.exception("the headroom cannot be computed")
        if count := watch.computations - before:
            used = time.thread_time() - began
            _LOG.info("computed %d of the model versions in %.1f s of CPU", count, used)
        time.sleep(args.watch)


def _measured(args: argparse.Namespace, warn: Callable[[str], None]) -> tuple[tuple[Measured, ...], float]:
    """Return the models with their objectives, and the end of the measured time."""
    objectives = _objectives(args)
    # A step of some scrapes holds enough of them, and an hour enough steps.
    step = math.ceil(max(2 * args.scrape_interval, min(15.0, args.last / 60)))
    if args.last < 2 * step:
        raise ProblemsError(
            Problem(
                "--last",
                f"is too short: it holds two steps of {in_words(step)}, {in_words(2 * step)}, at least",
            )
        )
    end = float(int(time.time() if args.at is None else args.at))
    start = end - args.last // step * step
    with access.connect(args) as prometheus:
        models = read_models(prometheus, start, end, step, args.model, objectives)
        if not models:
            which = f"model {args.model}" if args.model else "any model"
            known = access.models(prometheus)
            hint = did_you_mean(args.model, known) if args.model and args.model not in known else ""
            wrong = f"Prometheus has no counters of {which} in the last {in_words(args.last)}{hint}"
            raise ProblemsError(Problem("", wrong))
        for warning in prometheus.warnings:
            warn(f"{WARNS}{warning}")
    if not any(measured.promises for measured in models):
        names = ", ".join(sorted({measured.model for measured in models}))
        fix = "give --objectives a folder with one of the kind queue or latency for it"
        raise ProblemsError(Problem("", f"no objective on waits or latency concerns {names}", fix))
    return models, end


def _objectives(args: argparse.Namespace) -> tuple[Objective, ...]:
    objectives = load(args.objectives or files.objectives())
    known = {objective.name for objective in objectives}
    for name in args.objective:
        if name not in known:
            wrong = f"is not an objective{did_you_mean(name, known)}"
            raise ProblemsError(Problem(f"--objective {name}", wrong))
    return tuple(each for each in objectives if not args.objective or each.name in args.objective)
