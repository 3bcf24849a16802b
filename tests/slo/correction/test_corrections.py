"""Test the parts of corrections: the rule that adds them, the audit trail, and the refusals."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from support.history import END, serve
from support.history import openmetrics as written
from support.loopback import Handler, answering
from support.promtool import evaluated, rule_file
from support.recorded_fleet import OBJECTIVE
from support.recorded_group import group_labels, recorded_group
from support.tools import promtools
from triton_exporter.common.duration import DAY
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.correction.excluding_time import excluding
from triton_slo.correction.group_correction import GroupCorrection, PeriodBudget, Tile
from triton_slo.correction.recorded_growth import Growth, ScaledLengths
from triton_slo.correction.samples import openmetrics, reversed_text, samples_of
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.prometheus.client import Prometheus
from triton_slo.prometheus.server_access import Access
from triton_slo.promql import Matchers
from tritonwatch.audited_corrections.protocol import apply_correction, resume, undo
from tritonwatch.audited_corrections.trail import Entry, Trail, locked
from tritonwatch.audited_corrections.writers import Blocks, labels_of
from tritonwatch.cli import main
from tritonwatch.command_error import CommandError

HOUR = 3600
LABELS = (("indicator", "errors"), ("model", 'a"b\\c'), ("slo", "errors"), ("version", "1"))
BUDGET = PeriodBudget(20, 1000, 0.99)
TILES = (Tile(1_700_000_300, -5.0, -100.0), Tile(1_700_000_600, -10.5, -50.0))
CORRECTION = GroupCorrection(LABELS, 1_700_000_000, TILES, BUDGET, BUDGET.changed(TILES))
SPAN = (1_700_000_000.0, 1_700_000_600.0)
SIGNED = ("load test", "anna")


class Place:
    """A place that keeps what is written, or fails."""

    trail_folder: Path | None = None

    def __init__(self, fails: bool = False) -> None:
        self.place = {"blocks": "data"}
        self.texts: list[str] = []
        self.fails = fails

    def writable_until(self, now: float) -> float:
        return now

    def check(self) -> None:
        return

    def write(self, file: Path, text: str, entry_id: str) -> None:
        assert file.read_text() == text
        if self.fails:
            raise CommandError("no space left")
        self.texts.append(text)

    def next_step(self) -> str:
        return ""


@pytest.mark.real
def test_an_objective_without_events_is_not_called_not_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The objective's rules are loaded; it only lacks a group to which history could be added."""
    (tmp_path / "objectives").mkdir()
    for name in ("probe", "other"):
        text = f"{{name: {name}, target: 99%, indicator: probe}}"
        (tmp_path / "objectives" / f"{name}.yaml").write_text(text)
    now = int(time.time())
    info = (names.INFO, group_labels("probe"), [(at, 1.0) for at in range(now - 60, now + 600, 60)])
    with serve(written([info]), tmp_path / "prometheus") as url:
        words = ["replay", "plan", "--objectives", str(tmp_path / "objectives"), "--prometheus", url]
        assert 1 == main([*words, "--objective", "probe"])
        assert "rules of objective probe are loaded, but have recorded no events" in capsys.readouterr().err
        assert 1 == main([*words, "--objective", "other"])
        assert "rules of objective other are not loaded; load them first" in capsys.readouterr().err


def net(texts: list[str]) -> dict[tuple[str, float], float]:
    """Events by event and time, of all that was written once."""
    sums: dict[tuple[str, float], float] = {}
    for text in dict.fromkeys(texts):
        for series, value, at in samples_of(text):
            labels = dict(labels_of(series))
            if labels["__name__"] == names.SLI_EVENTS_CORRECTION:
                key = labels[names.EVENT], at
                sums[key] = sums.get(key, 0.0) + value
    return sums


def test_samples_name_series_as_they_were() -> None:
    """Quotes and backslashes in the name of a model come back as they were."""
    series = {labels_of(name) for name, _, _ in samples_of(openmetrics([CORRECTION], "c1"))}

    assert {dict(LABELS)["model"]} == {dict(labels)["model"] for labels in series}
    assert {"c1"} == {dict(labels)[names.CORRECTION] for labels in series}


def test_an_undo_takes_back_every_event(tmp_path: Path) -> None:
    """The sum of both is nothing, at each time."""
    place = Place()
    entry = apply_correction("exclude", [CORRECTION], SPAN, SIGNED, tmp_path, place)
    with locked(tmp_path) as trail:
        undo(trail, trail.find(entry.id), SIGNED, place)

    assert {0.0} == set(net(place.texts).values())
    assert "undone" == Trail(tmp_path).state(entry)
    text = openmetrics([CORRECTION], "c1")
    assert text == reversed_text(reversed_text(text, "c1", "c2"), "c2", "c1")


def test_what_was_interrupted_is_known_and_goes_on(tmp_path: Path) -> None:
    """The trail has the entry and its samples before anything is written; undo writes the rest first."""
    with pytest.raises(CommandError, match="not complete: no space left"):
        apply_correction("exclude", [CORRECTION], SPAN, SIGNED, tmp_path, Place(fails=True))
    [entry] = Trail(tmp_path).entries
    assert "incomplete" == Trail(tmp_path).state(entry)
    assert ("anna", "load test") == (entry.author, entry.reason)
    place = Place()
    with locked(tmp_path) as trail:
        undo(trail, entry, SIGNED, place)

    assert 2 == len(place.texts)
    assert {0.0} == set(net(place.texts).values())


def test_a_line_that_a_crash_cut_off_is_dropped(tmp_path: Path) -> None:
    """The incomplete entry was not acknowledged and had no effect; the next entry begins on a new line."""
    place = Place()
    entry = apply_correction("exclude", [CORRECTION], SPAN, SIGNED, tmp_path, place)
    lines = tmp_path / "trail.jsonl"
    lines.write_bytes(lines.read_bytes() + b'{"event": "begin", "id": "excl')
    with locked(tmp_path) as trail:
        assert [entry.id] == [entry.id for entry in trail.entries]
        undo(trail, trail.find("exclude"), SIGNED, place)

    assert [entry.id, f"undo-{entry.id}"] == [entry.id for entry in Trail(tmp_path).entries]


def test_the_same_time_is_not_corrected_twice(tmp_path: Path) -> None:
    """This also applies before the server shows the first correction; after an undo it is allowed."""
    place = Place()
    entry = apply_correction("exclude", [CORRECTION], SPAN, SIGNED, tmp_path, place)
    later = (SPAN[1], SPAN[1] + 300)
    with pytest.raises(CommandError, match=f"by {entry.id}"):
        apply_correction("exclude", [CORRECTION], (SPAN[0] + 300, SPAN[1] + 300), SIGNED, tmp_path, place)
    assert 1 == len(place.texts)
    with locked(tmp_path) as trail:
        undo(trail, trail.find(entry.id), SIGNED, place)
        with pytest.raises(CommandError, match="is already undone"):
            undo(trail, trail.find(entry.id), SIGNED, place)
    changed = GroupCorrection(LABELS, 1.0, (Tile(later[1], -1, -1),), BUDGET, BUDGET)
    apply_correction("exclude", [changed], (SPAN[0], later[1]), SIGNED, tmp_path, place)

    assert 3 == len(place.texts)


@pytest.mark.real
def test_the_same_time_is_not_corrected_twice_by_two_trails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prometheus shows the blocks of the first only after a minute; what is written stands beside them."""
    monkeypatch.setenv("PATH", f"{promtools()[0].parent}:{os.environ['PATH']}")
    (tmp_path / "data").mkdir()
    data, ours, theirs = Blocks(tmp_path / "data"), tmp_path / "ours", tmp_path / "theirs"
    entry = apply_correction("exclude", [CORRECTION], SPAN, SIGNED, ours, data)
    with pytest.raises(CommandError, match=f"corrected already, by {entry.id}"):
        apply_correction("exclude", [CORRECTION], SPAN, SIGNED, theirs, data)
    assert [] == Trail(theirs).entries
    with locked(ours) as trail:
        undo(trail, trail.find(entry.id), SIGNED, data)
    changed = GroupCorrection(LABELS, 1.0, TILES[:1], BUDGET, BUDGET)
    again = apply_correction("exclude", [changed], SPAN, SIGNED, theirs, data)
    with pytest.raises(CommandError, match=f"corrected already, by {again.id}"):
        apply_correction("exclude", [CORRECTION], SPAN, SIGNED, ours, data)


def test_one_writes_at_a_time(tmp_path: Path) -> None:
    """The second is refused, and a damaged trail or file of samples is named."""
    entry = apply_correction("exclude", [CORRECTION], SPAN, SIGNED, tmp_path, Place())
    with locked(tmp_path), pytest.raises(CommandError, match="another tritonwatch"), locked(tmp_path):
        pass
    trail = Trail(tmp_path)
    trail.path(entry).write_text("# EOF\n")
    with pytest.raises(CommandError, match="SHA-256"):
        resume(trail, entry, Place())
    (tmp_path / "trail.jsonl").write_text("{}\n")
    with pytest.raises(CommandError, match=r"trail\.jsonl:1"):
        Trail(tmp_path)


def test_a_sum_that_reads_a_little_less_takes_no_event_back() -> None:
    """A sum that prints a little less than before takes no event back."""
    times = ScaledLengths().edges((100.0, 1000.0))
    growth = Growth(times, times * 0, times.copy())
    growth.total[2] -= 500

    assert [100.0, 300.0, 600.0, 900.0, 1000.0] == times.tolist()
    assert [100.0, 300.0, 300.0, 900.0, 1000.0] == growth.at(times)[1].tolist()


def period_rule(window: str) -> dict[str, str]:
    """Return the rule that adds corrections to a period."""
    objective = Objective.model_validate({**OBJECTIVE.model_dump(exclude_unset=True), "window": window})
    text = next(
        artifact.text for artifact in artifacts([objective], Options()) if artifact.name == "slo-errors.yml"
    )
    name = names.PERIOD_EVENTS_COUNTED if window == "month" else names.sli_events("7d")
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    return next(rule for rule in rules if rule.get("record") == name)


def series(name: str, **labels: str) -> str:
    group = {"slo": "errors", "indicator": "errors", "model": "m", "version": "1", **labels}
    return name + str(Matchers(tuple(f'{label}="{value}"' for label, value in group.items())))


@pytest.mark.real
@pytest.mark.parametrize("counted_from", [0.5, 3.0])
def test_a_correction_counts_for_the_sum_it_was_made_of(counted_from: float, tmp_path: Path) -> None:
    """After a pause of over a day a sum begins again: it does not have the events that a correction takes away."""
    grown = {event: series(names.SLI_EVENTS_SUM, event=event) for event in (names.ERROR, names.TOTAL)}
    written = {
        event: series(names.SLI_EVENTS_CORRECTION, event=event, correction="c")
        for event in (names.ERROR, names.TOTAL)
    }
    given = {
        grown[names.ERROR]: "0+10x12",
        grown[names.TOTAL]: "0+100x12",
        series(names.SLI_EVENTS_SINCE): f"{2 * HOUR}x12",
        written[names.ERROR]: "_ _ _ -7 _ _ _ _ _ _ _ _ _",
        written[names.TOTAL]: "_ _ _ -70 _ _ _ _ _ _ _ _ _",
        series(names.CORRECTION_FROM, correction="c"): f"_ _ _ {counted_from * HOUR:.0f} _ _ _ _ _ _ _ _ _",
    }
    rule = period_rule("7d")
    asked = [(names.sli_events("7d"), 12.0 * HOUR)]
    [answer] = evaluated(
        promtools()[-1], tmp_path, rule_file({"g": [rule]}), given, asked, interval=HOUR, evaluation=HOUR
    )
    actual = {labels["event"]: value * 7 * 24 * HOUR for labels, value in answer}

    taken = 7 if counted_from == 3.0 else 0
    assert pytest.approx({"error": 120 - taken, "total": 1200 - 10 * taken}) == actual


@pytest.mark.real
def test_a_calendar_period_has_its_own_corrections(tmp_path: Path) -> None:
    """What was corrected in the month before changes nothing in this one."""
    given = {
        series(names.PERIOD_EVENTS, event=names.ERROR): "50x12",
        series(names.PERIOD_EVENTS, event=names.TOTAL): "500x12",
        f'{names.PERIOD_START}{{slo="errors", indicator="errors"}}': f"{5 * HOUR}x12",
    }
    for correction, at, taken in (("before", 3, 20), ("now", 7, 30)):
        for event, events in ((names.ERROR, taken), (names.TOTAL, 10 * taken)):
            name = series(names.SLI_EVENTS_CORRECTION, event=event, correction=correction)
            given[name] = f"_x{at - 1} -{events}" if at else ""
        given[series(names.CORRECTION_FROM, correction=correction)] = f"_x{at - 1} {at * HOUR}"
    rule = period_rule("month")
    asked = [(names.PERIOD_EVENTS_COUNTED, 12.0 * HOUR)]
    [answer] = evaluated(
        promtools()[-1], tmp_path, rule_file({"g": [rule]}), given, asked, interval=HOUR, evaluation=HOUR
    )

    assert pytest.approx({"error": 20, "total": 200}) == {labels["event"]: value for labels, value in answer}


APPLY = ["correct", "apply", "--prometheus", "http://127.0.0.1:9", "--reason", "r", "--author", "a"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--from", "2026-05-01T10:00Z", "--to", "2026-05-01T09:00Z"], "is not after --from"),
        (["--from", "1000", "--to", "2000", "--reason", " "], "--reason: give one line"),
        (["--from", "1000", "--to", "2000", "--blocks", "nowhere"], "no such folder"),
        (["--from", "1000", "--to", "7000000000"], "is in the future"),
        pytest.param(
            ["--from", "1000", "--to", str(int(time.time()) - 60)],
            "still has this time in memory",
            id="recent",
        ),
        (["--from", "1000", "--to", "2000"], "not reachable"),
    ],
)
def test_bad_input_writes_nothing(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A clear error, and neither a trail nor a block."""
    monkeypatch.chdir(tmp_path)
    Path("blocks").mkdir()
    place = [] if "--blocks" in words else ["--blocks", "blocks"]

    assert main([*APPLY, *place, *words]) in (1, 2)
    assert message in capsys.readouterr().err
    assert ["blocks"] == [path.name for path in tmp_path.rglob("*")]


def _exchanged(request: Handler, stored: list[str]) -> None:
    """Answer as the import API of VictoriaMetrics for one bearer token: exports what was imported."""
    status = 200 if request.headers["Authorization"] == "Bearer secret" else 401
    stored += request.body().decode().splitlines()
    exported = request.command == "GET" and urlsplit(request.path).path == "/api/v1/export"
    lines = (line.rsplit(" ", 2) for line in stored if exported)
    rows = [{"metric": dict(labels_of(series)), "timestamps": [int(at)]} for series, _, at in lines]
    request.reply("".join(f"{json.dumps(row)}\n" for row in rows), status)


def test_an_import_is_undone_and_resumed_with_its_credentials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The token is that of the address in the trail; without it VictoriaMetrics refuses, and nothing changes."""
    stored: list[str] = []
    (tmp_path / "token").write_text("secret")
    given = ["--token-file", str(tmp_path / "token")]
    trail = ["--trail", str(tmp_path / "trail")]
    signed = ["--reason", "wrong day", "--author", "anna"]
    with answering(partial(_exchanged, stored=stored)) as url:
        place = Place(fails=True)
        place.place = {"import": url}
        with pytest.raises(CommandError):
            apply_correction("exclude", [CORRECTION], SPAN, SIGNED, tmp_path / "trail", place)
        assert 1 == main(["correct", "resume", "exclude", *trail])
        assert "HTTP 401" in capsys.readouterr().err
        assert 0 == main(["correct", "resume", "exclude", *trail, *given])
        assert 5 == len(stored)
        assert 1 == main(["correct", "undo", "exclude", *trail, *signed])
        assert 0 == main(["correct", "undo", "exclude", *trail, *signed, *given])

    assert 10 == len(stored)
    assert ["undone", "written"] == [
        Trail(tmp_path / "trail").state(entry) for entry in Trail(tmp_path / "trail").entries
    ]


def test_the_list_shows_reason_author_and_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people and as JSON."""
    entry = apply_correction("exclude", [CORRECTION], SPAN, SIGNED, tmp_path, Place())

    assert 0 == main(["correct", "list", "--trail", str(tmp_path)])
    line = capsys.readouterr().out
    assert f"{entry.id}  written  2023-11-14 22:13:20 UTC to 2023-11-14 22:23:20 UTC" in line
    assert "anna" in line
    assert "load test" in line
    assert 0 == main(["correct", "list", "--trail", str(tmp_path), "--json"])
    assert {"state": "written", "samples": 5}.items() <= json.loads(capsys.readouterr().out).items()
    assert isinstance(Trail(tmp_path).find("exclude"), Entry)
    assert 1 == main(
        ["correct", "undo", "no-such", "--trail", str(tmp_path), "--reason", "r", "--author", "a"]
    )
    assert "the trail has no such correction" in capsys.readouterr().err


@pytest.mark.real
def test_a_stretch_that_begins_before_the_rules_loses_none_of_their_events(tmp_path: Path) -> None:
    """The failures of the first outage after the rules were loaded are all taken out, as from a later start."""
    began = END - 570.0  # between two tiles
    labels = group_labels("readiness", "m")

    def failed(at: float) -> float:
        return max(0.0, min(at, END - 240) - (END - 420))

    recorded = recorded_group(
        labels,
        [began + 15 * i for i in range(39)],
        target=0.99,
        since=began,
        sums=(failed, lambda at: at - began),
        events={"30d": (lambda at: failed(at) / (30 * DAY), lambda at: (at - began) / (30 * DAY))},
    )
    info = (names.INFO, {names.SLO: "readiness", names.INDICATOR: "readiness", "window": "30d"}, [(END, 1)])

    with serve(written([*recorded, info]), tmp_path) as url:
        prometheus = Prometheus(Access(url))
        taken = [
            excluding(prometheus, Matchers(), (start, END - 60.0), END, ScaledLengths())[0].error
            for start in (began + 60, began - 120)
        ]

    assert [pytest.approx(-180, abs=1)] * 2 == taken
