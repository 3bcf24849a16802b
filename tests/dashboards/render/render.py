"""Draw dashboards over the made history with Grafana's own components, and check what the pictures show.

    npm install --legacy-peer-deps --ignore-scripts     (once, in this folder)
    python tests/dashboards/render/render.py [--out docs/pictures] [--width 2560] [--mode light] [--opened]
    python tests/dashboards/render/render.py --large --out /tmp/large      (200 models x 30 servers x 4 objectives)

Needs Node 20, Chromium, Prometheus and promtool. Exits 1 if a panel failed to draw or shows something else
than the history contains.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from bench import bench_boards  # noqa: E402
from dashboards import made_fleet  # noqa: E402
from support.browser import find_chromium  # noqa: E402
from support.history import END, running  # noqa: E402
from support.panels import Grafana, Json  # noqa: E402
from triton_dashboards import per_model  # noqa: E402
from triton_dashboards.generate import dashboards  # noqa: E402
from triton_dashboards.grafana import dashboard_model  # noqa: E402
from triton_dashboards.recording import rules_text  # noqa: E402
from triton_slo import links  # noqa: E402
from triton_slo.artifact import Options  # noqa: E402
from triton_slo.objective.reading import read  # noqa: E402

UNIT, HEAD = 38, 74
OWN = per_model.ModelFacts("classifier", ("1", "2"), "tensorrt")
"""The model whose own dashboard is drawn."""


@dataclass(frozen=True)
class Picture:
    """A dashboard to draw: with which variables, how wide, and what must be read on it."""

    name: str
    uid: str
    wanted: tuple[tuple[str, str], ...] = ()
    mode: str = "dark"
    width: int = 1440
    opened: bool = False
    """Draw what is inside collapsed rows as well."""
    rows: tuple[str, ...] = ()
    """Draw only these rows, opened."""
    texts: tuple[tuple[str, str], ...] = ()
    """(panel title, regular expression that its text must match)."""
    colors: tuple[tuple[str, str], ...] = ()
    """(title of a stat, colour of its number) in the dark theme."""


COLORS = {
    "green": "rgb(115, 191, 105)",
    "blue": "rgb(87, 148, 242)",
    "orange": "rgb(255, 152, 48)",
    "red": "rgb(242, 73, 92)",
}
"""Grafana's classic palette in its dark theme."""


PICTURES = (
    Picture(
        "dashboard-fleet",
        links.FLEET,
        texts=(
            ("Not ready", r"\b2\b"),
            ("Servers down", r"\b0\b"),
            ("Models", r"classifier.*2\.\d+%"),
            ("Models", r"saturated.*90\.0%"),
            ("Failed by model", r"classifier"),
        ),
        colors=(("Servers down", "green"), ("Not ready", "red"), ("Alerts firing", "orange")),
    ),
    Picture("dashboard-fleet-light", links.FLEET, mode="light", texts=(("Not ready", r"\b2\b"),)),
    Picture(
        "dashboard-model",
        links.MODEL,
        (("model", "classifier"),),
        texts=(("Versions", r"8\.\d*%"), ("Failures by reason", r"BACKEND"), ("Not ready", r"\b0\b")),
    ),
    Picture(
        "dashboard-one-model",
        per_model.uid(OWN.name),
        texts=(("Failures by reason", r"BACKEND"), ("p99 latency", r"ms")),
        colors=(("p99 latency", "blue"), ("Failed", "red")),
    ),
    Picture(
        "dashboard-language-model",
        links.MODEL,
        (("model", "llama-trt"),),
        rows=("Language model (TensorRT-LLM)", "First response (needs histogram_latencies)"),
        texts=(("KV cache used", r"triton-0"),),
    ),
    Picture("dashboard-slo", links.SLO, texts=(("Least budget left", r"-35"), ("Unknown", r"\b1\b"))),
    Picture("dashboard-gpu", links.GPU, texts=(("GPUs seen", r"\b4\b"), ("Throttled by heat", r"\b1\b"))),
    Picture(
        "dashboard-server",
        links.SERVER,
        texts=(
            ("Models not ready", r"\b2\b"),
            ("Loads failed", r"\b[89]\b"),
            ("Not ready now", r"unavailable 40 minutes ago"),
        ),
    ),
    Picture(
        "dashboard-on-call", links.ON_CALL, texts=(("Watchdog", "Alive"), ("Firing", "TritonModelLoadFailed"))
    ),
)


def main(argv: list[str]) -> int:
    """Draw, check, and print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--only", default="", help="name of one picture")
    parser.add_argument("--width", type=int, default=0, help="pixels; 1280 is a laptop, 2560 a wall")
    parser.add_argument("--mode", choices=("dark", "light"), help="theme for all pictures")
    parser.add_argument("--model", default="", help="another one for the model dashboard")
    parser.add_argument("--opened", action="store_true", help="with what is inside collapsed rows")
    parser.add_argument("--large", action="store_true", help="draw 200 models x 30 servers x 4 objectives")
    parser.add_argument("--chromium", default=find_chromium() or "chromium")
    args = parser.parse_args(argv)
    bundle()
    args.out.mkdir(parents=True, exist_ok=True)
    files = sorted((ROOT / "slo" / "objectives").glob("*.yaml"))
    objectives = read([(path.name, path.read_text(encoding="utf-8")) for path in files]).objectives
    own = dashboard_model(per_model.dashboard(OWN, objectives, Options()))
    models = {board.uid: dashboard_model(board) for board in dashboards(Options())} | {own["uid"]: own}
    changed: Json = {
        **({"width": args.width} if args.width else {}),
        **({"mode": args.mode, "colors": ()} if args.mode else {}),
        **({"opened": True} if args.opened else {}),
        **({"texts": ()} if args.model or args.large else {}),
        **({"colors": ()} if args.large else {}),
    }
    problems = []
    with large() if args.large else small() as fleet:
        for picture in PICTURES:
            if args.only not in ("", picture.name) or (args.large and picture.name not in LARGE):
                continue
            changed_picture = replace(picture, **changed)
            if args.model and changed_picture.wanted:
                changed_picture = replace(changed_picture, wanted=(("model", args.model),))
            if args.large and changed_picture.wanted:
                changed_picture = replace(changed_picture, wanted=(("model", "model-000"),))
            model = models[changed_picture.uid]
            seconds = {"now-6h": 21_600, "now-24h": 86_400}[model["time"]["from"]]
            grafana = replace(fleet, seconds=seconds) if args.large else fleet
            started = time.perf_counter()
            problems += draw(changed_picture, model, grafana, args.out, args.chromium)
            print(f"{changed_picture.name}: {time.perf_counter() - started:.1f} s")
    print("\n".join(problems) or "every panel is drawn and shows the values of the history")
    return 1 if problems else 0


LARGE = (
    "dashboard-fleet",
    "dashboard-model",
    "dashboard-slo",
    "dashboard-gpu",
    "dashboard-server",
    "dashboard-on-call",
)
"""Pictures that are also drawn of the large fleet: one of each dashboard."""


@contextmanager
def small() -> Iterator[Grafana]:
    """Serve the made history of two servers."""
    with tempfile.TemporaryDirectory() as folder:
        made_fleet.backfill(Path(folder), rules_text(Options()))
        with running(Path(folder)) as url:
            yield Grafana(url, END)


@contextmanager
def large() -> Iterator[Grafana]:
    """Serve the fleet of tests/bench/bench_boards.py."""
    with tempfile.TemporaryDirectory() as folder, bench_boards.served(Path(folder)) as url:
        yield Grafana(url, END, step=bench_boards.SCRAPE, scrape_seconds=bench_boards.SCRAPE)


def bundle() -> None:
    """Bundle the page; its parts come from npm."""
    flags = [f"--loader:.{kind}=dataurl" for kind in ("svg", "woff", "woff2", "ttf", "png")]
    defines = ['--define:process.env.NODE_ENV="production"', "--define:process.env.NODE_DEBUG=undefined"]
    subprocess.run(
        [
            HERE / "node_modules" / ".bin" / "esbuild",
            "page.jsx",
            "--bundle",
            "--outfile=bundle.js",
            *flags,
            *defines,
            "--define:global=globalThis",
            "--jsx=automatic",
            "--log-level=error",
            "--alias:react-custom-scrollbars-2=./scrollbars.js",
        ],
        cwd=HERE,
        check=True,
    )


def draw(picture: Picture, model: Json, grafana: Grafana, out: Path, chromium: str) -> list[str]:
    """Write one PNG; returns what is wrong with it."""
    chosen = grafana.choose(model, dict(picture.wanted))
    if picture.rows:
        model = _opened(
            model | {"panels": [panel for panel in model["panels"] if panel["title"] in picture.rows]}
        )
    elif picture.opened:
        model = _opened(model)
    asked = [panel for panel in model["panels"] if panel.get("targets")]
    answers = {
        panel["id"]: {
            target["refId"]: grafana.ask(panel, target, chosen).series for target in panel["targets"]
        }
        for panel in asked
    }
    data = {
        "model": model,
        "answers": answers,
        "marks": _marks(model, grafana, chosen),
        "chosen": chosen,
        "wanted": dict(picture.wanted),
        "from": END - grafana.seconds,
        "to": END,
        "mode": picture.mode,
        "width": picture.width,
    }
    (HERE / "data.js").write_text(f"window.DATA = {json.dumps(data)};", encoding="utf-8")
    height = HEAD + 8 + UNIT * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in model["panels"])
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=8000",
        f"--window-size={picture.width},{height}",
        "--allow-file-access-from-files",
    ]
    page = f"file://{HERE / 'page.html'}"
    target = out / f"{picture.name}.png"
    quiet = {"check": True, "capture_output": True, "timeout": 120}
    subprocess.run([chromium, *flags, f"--screenshot={target}", page], **quiet)  # type: ignore[call-overload]
    dom = subprocess.run([chromium, *flags, "--dump-dom", page], **quiet).stdout.decode()  # type: ignore[call-overload]
    return [f"{picture.name}: {problem}" for problem in check(picture, asked, dom)]


def _marks(model: Json, grafana: Grafana, chosen: dict[str, str]) -> list[Json]:
    """Return when each annotation that is switched on began and ended, with its colour."""
    drawn = {"list": [annotation for annotation in model["annotations"]["list"] if annotation["enable"]]}
    marks = []
    for annotation, answer in zip(
        (annotation for annotation in drawn["list"] if "target" in annotation),
        replace(grafana, step=max(60, grafana.step)).marks({"annotations": drawn}, chosen),
        strict=True,
    ):
        step = max(60, grafana.step)
        for series in answer.series:
            times = [int(at) for at, _ in series["values"]]
            starts = [at for before, at in zip([0, *times], times, strict=False) if at - before > step]
            ends = [at for at, after in zip(times, [*times[1:], END * 2], strict=True) if after - at > step]
            marks += [
                {"color": annotation["iconColor"], "start": start, "end": end}
                for start, end in zip(starts, ends, strict=True)
            ]
    return marks


def _opened(model: Json) -> Json:
    """Return the dashboard with all its rows open, one after the other, as Grafana moves what is below."""
    placed: list[Json] = []
    end = moved = 0
    for panel in model["panels"]:
        if panel["type"] == "row":
            moved = end - panel["gridPos"]["y"]
        opened = panel | ({"collapsed": False, "panels": []} if panel["type"] == "row" else {})
        for opened_panel in (opened, *panel.get("panels", ())):
            place = opened_panel["gridPos"] | {"y": opened_panel["gridPos"]["y"] + moved}
            placed.append(opened_panel | {"gridPos": place})
            end = max(end, place["y"] + place["h"])
    return model | {"panels": placed}


def check(picture: Picture, asked: list[Json], dom: str) -> list[str]:
    """Return the problems of a page: missing panels, NaN, and texts that it must show and does not."""
    parts = re.split(r'<div [^>]*?data-panel="', dom)[1:]
    texts: dict[str, str] = {}
    seen: dict[str, str] = {}
    problems = []
    for part in parts:
        title, rest = html.unescape(part.split('"', 1)[0]), part
        error = re.search(r'data-error="([^"]*)"', rest)
        if error and error[1]:
            problems.append(f"{title}: {html.unescape(error[1])}")
        number = re.search(r'font-size: [^"]*?color: (rgb\([^)]*\))', rest)
        seen[title] = number[1] if number else ""
        texts[title] = html.unescape(re.sub(r"<[^>]+>", " ", rest.split(">", 1)[1]))
    missing = {panel["title"] for panel in asked} - set(texts)
    problems += [f"{title}: not drawn" for title in sorted(missing)]
    problems += [f"{title}: shows NaN" for title, text in texts.items() if "NaN" in text]
    for title, pattern in picture.texts:
        if not re.search(pattern, " ".join(texts.get(title, "").split())):
            problems.append(
                f"{title}: does not say {pattern!r}: {' '.join(texts.get(title, '').split())[:300]}"
            )
    problems += [
        f"{title}: is not {color} but {seen.get(title)}"
        for title, color in picture.colors
        if seen.get(title) != COLORS[color]
    ]
    return problems


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
