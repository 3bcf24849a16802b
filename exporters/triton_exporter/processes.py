"""Memory, CPU time and deaths of Triton's processes, and the use of its /dev/shm.

The Python backend starts a process ("stub") for each instance of a model. Its arguments are the path of model.py, the
name of its region in /dev/shm, and (the eighth) the name of the instance. A stub that Triton starts again keeps its
region; a load makes new ones.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil

from triton_exporter.catalogue import processes
from triton_exporter.common.options import is_loopback
from triton_exporter.family import Family
from triton_exporter.snapshot import IndexEntry, ModelVersion, Snapshot

_LOG = logging.getLogger(__name__)

_STUB = "triton_python_backend_stub"
_DEFAULT_PREFIX = "triton_python_backend_shm_region_"
_REGION_NUMBER = re.compile(r"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+)$")

_OWN_SHM = "/dev/shm"  # noqa: S108 - where Triton puts them

INTERVAL_SECONDS = 30.0
"""Time between two readings; longer where they would take more than MAX_SHARE of a core: to read the PSS of a process
with much memory is slow."""

MAX_SHARE = 0.01


class _Stub(NamedTuple):
    process: psutil.Process
    server_pid: int
    path: str
    region: str
    instance: str


LINGERING = 60
"""Readings after which processes of an earlier load that run beside those of the new one are taken to have been left."""


@dataclass
class _Loads:
    """Memory after each load of a model, of whichever version; regions tell loads apart, which may take longer than a reading."""

    growth: tuple[int, ...] = ()  # of RELOAD_PARTS, from load to load
    _memory: tuple[int, ...] = ()  # after this load; empty until it has ended
    _memory_before: tuple[int, ...] = ()
    _regions: frozenset[str] = frozenset()  # of this load
    _earlier: frozenset[str] = frozenset()
    _latest: frozenset[str] = frozenset()
    _unchanged: int = 0

    def note(self, running: frozenset[str], memory: tuple[int, ...], *, is_ready: bool) -> None:
        """Take in one reading: the regions of the running stubs, and the memory of each of RELOAD_PARTS."""
        self._unchanged = self._unchanged + 1 if running == self._latest else 0
        self._latest = running
        new = running - self._regions - self._earlier
        if new and self._memory:
            self._memory_before, self._memory = self._memory, ()
            self._earlier, self._regions = running - new, new
        else:
            self._regions |= new
        # Triton ends the processes of the earlier load when the new one has ended.
        wanted = LINGERING if self._earlier & running else 1
        if not self._memory and is_ready and self._regions & running and self._unchanged >= wanted:
            self._memory = memory
            if self._memory_before:
                self.growth = tuple(now - old for now, old in zip(memory, self._memory_before, strict=True))


class Processes:
    """Reads Triton's processes where the exporter can see them; else there are no series.

    `url` is Triton's metrics endpoint: the process that answers there is the server.
    """

    def __init__(self, url: str) -> None:
        self.interval_seconds = INTERVAL_SECONDS
        self._url = url
        self._families: Sequence[Family] = ()  # replaced as a whole
        self._index: Sequence[IndexEntry] | None = None  # until Triton was asked once
        self._server: psutil.Process | None = None
        self._strangers: set[psutil.Process] = set()  # looked at, and none of them is the server
        self._stubs: dict[str, tuple[psutil.Process, ModelVersion]] = {}  # by region
        self._zombies: set[psutil.Process] = set()
        self._dead: set[psutil.Process] = set()
        self._deaths: Counter[ModelVersion] = Counter()
        self._cpu: defaultdict[ModelVersion | None, float] = defaultdict(float)  # None: the server
        self._cpu_of: dict[psutil.Process, float] = {}
        self._seen: set[ModelVersion] = set()
        self._loads: defaultdict[str, _Loads] = defaultdict(_Loads)  # by model
        self._prefixes: set[str] = set()
        self._unclaimed: set[str] = set()
        self._is_warned = False

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Note which model versions Triton has, and which are loaded."""
        if snapshot.index is not None or self._index is None:
            self._index = snapshot.index or ()

    def families(self, now: float) -> Iterable[Family]:
        """Return the families of the last reading."""
        return self._families

    def poll(self, now: float) -> None:
        """Read all processes, and the memory of those of this Triton."""
        if self._index is None:
            self.interval_seconds = 1.0
            return
        started = time.thread_time()
        try:
            states = {ModelVersion(entry.model, entry.version): entry.state for entry in self._index}
            self._families = tuple(self._read(states))
        except (psutil.Error, OSError):  # Triton ends now
            self._families = ()
        self.interval_seconds = max(INTERVAL_SECONDS, (time.thread_time() - started) / MAX_SHARE)

    def _read(self, states: Mapping[ModelVersion, str]) -> Iterable[Family]:
        models = {version.model for version in states}
        visible, children, stubs, zombies = _scan()
        parents = {stub.server_pid for stub in stubs}  # also a program that has Triton as a library
        candidates = [
            process for pid, (process, name) in visible.items() if name == "tritonserver" or pid in parents
        ]
        if self._server not in candidates:
            if self._server is None:
                self._strangers.intersection_update(candidates)
            else:  # it has ended: one of them may have taken its place
                self._strangers.clear()
            self._server = self._find_server(candidates)
            self._stubs.clear()
            self._seen.clear()
            self._loads.clear()
        if self._server is None:
            return
        mine = [stub for stub in stubs if stub.server_pid == self._server.pid]
        by_model: dict[ModelVersion, list[_Stub]] = {
            version: [] for version in self._seen if not models or version.model in models
        }
        for stub in mine:
            by_model.setdefault(_model_of(stub, models), []).append(stub)
        self._seen |= by_model.keys()
        self._count_deaths(by_model, zombies)
        cpu_before, self._cpu_of = self._cpu_of, {}
        server_rss, server_pss = self._memory([self._server], None, cpu_before)
        memory = {
            version: self._memory(_with_descendants(its, children), version, cpu_before)
            for version, its in by_model.items()
        }
        shown = [(version, *memory[version]) for version, its in by_model.items() if its]
        yield Family.of(
            processes.MODEL_PROCESSES, {version: len(its) for version, its in by_model.items()}.items()
        )
        yield Family.of(
            processes.MODEL_PROCESS_DEATHS, {version: self._deaths[version] for version in by_model}.items()
        )
        yield Family.of(processes.MODEL_CPU, {version: self._cpu[version] for version in by_model}.items())
        yield Family.of(processes.MODEL_RSS, ((version, rss) for version, rss, _ in shown))
        yield Family.of(processes.MODEL_PSS, ((version, pss) for version, _, pss in shown if pss is not None))
        yield Family.single(processes.SERVER_CPU, self._cpu[None])
        yield Family.single(processes.SERVER_RSS, server_rss)
        if server_pss is not None:
            yield Family.single(processes.SERVER_PSS, server_pss)
        used = 0
        folder = self._shm_folder([stub.region for stub in mine])
        if folder:
            space = os.statvfs(folder)
            used = (space.f_blocks - space.f_bfree) * space.f_frsize
            yield Family.single(processes.SHM_SIZE, space.f_blocks * space.f_frsize)
            yield Family.single(processes.SHM_USED, used)
            yield from self._regions(folder, by_model, {stub.region for stub in stubs})
        server_memory = server_rss if server_pss is None else server_pss
        for model in {version.model for version in by_model}:
            its = [version for version in by_model if version.model == model]
            own = sum(rss if pss is None else pss for rss, pss in map(memory.__getitem__, its))
            regions = frozenset(stub.region for version in its for stub in by_model[version])
            listed = [state for version, state in states.items() if version.model == model]
            is_ready = not listed or "READY" in listed
            self._loads[model].note(regions, (server_memory, own, used), is_ready=is_ready)
        growths = (
            ((model, part), growth)
            for model in {version.model for version in by_model}
            for part, growth in zip(processes.RELOAD_PARTS, self._loads[model].growth, strict=False)
            if part != "shm" or folder
        )
        yield Family.of(processes.RELOAD_GROWTH, growths)

    def _find_server(self, candidates: Sequence[psutil.Process]) -> psutil.Process | None:
        """Return which process answers on a connection to Triton; where that may not be seen, the only one on loopback."""
        # To look at one takes as long as to read all processes: it lists all connections of the machine.
        new = [candidate for candidate in candidates if candidate not in self._strangers]
        if not new:
            return None
        host, port = urlsplit(self._url).hostname or "", urlsplit(self._url).port or 80
        is_denied = False
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=2) as ours:
            ours.sendall(b"GET / HTTP/1.1\r\nHost: triton\r\n\r\n")
            ours.recv(1)  # any answer: before it, the connection may not be accepted yet
            self._strangers.update(new)  # unless one of them is found to be it
            own_end = ours.getsockname()[:2]
            for candidate in new:
                try:
                    ends = [
                        end.raddr
                        for end in candidate.net_connections("tcp")
                        if end.status == psutil.CONN_ESTABLISHED
                    ]
                    # An IPv6 socket shows an IPv4 address with a prefix.
                    if own_end in [(end.ip.removeprefix("::ffff:"), end.port) for end in ends]:
                        return candidate
                except psutil.AccessDenied:
                    is_denied = True
                except psutil.NoSuchProcess:
                    continue
            if is_denied and len(candidates) == 1 and is_loopback(host):
                return candidates[0]
        return None

    def _count_deaths(
        self, by_model: Mapping[ModelVersion, Sequence[_Stub]], zombies: set[psutil.Process]
    ) -> None:
        """Count each stub that Triton has not collected at two readings, or that another one has replaced."""
        for process, version in self._stubs.values():
            if process in zombies & self._zombies and process not in self._dead:
                self._dead.add(process)
                self._deaths[version] += 1
        ended = self._stubs
        self._stubs = {region: known for region, known in ended.items() if known[0] in zombies}
        for version, stubs in by_model.items():
            for stub in stubs:
                before, _ = ended.get(stub.region, (stub.process, version))
                if before != stub.process and before not in self._dead:
                    self._deaths[version] += 1
                self._stubs[stub.region] = stub.process, version
        self._zombies = zombies
        self._dead &= zombies

    def _memory(
        self,
        some: Iterable[psutil.Process],
        owner: ModelVersion | None,
        cpu_before: Mapping[psutil.Process, float],
    ) -> tuple[int, int | None]:
        """Return RSS and PSS (None: may not be read) of processes, and add their new CPU time to their owner's."""
        rss = pss = 0
        is_denied = False
        for process in some:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._cpu_of[process] = times.user + times.system
                self._cpu[owner] += self._cpu_of[process] - cpu_before.get(process, 0.0)
                rss += process.memory_info().rss
                try:
                    pss += 0 if is_denied else process.memory_full_info().pss
                except psutil.AccessDenied:
                    is_denied = True
        if is_denied and not self._is_warned:
            self._is_warned = True
            _LOG.warning("may not read the PSS of Triton's processes: run the exporter as Triton's user")
        return rss, None if is_denied else pss

    def _shm_folder(self, regions: Sequence[str]) -> str | None:
        """Return the path of Triton's /dev/shm: through its process, or one that both containers mount."""
        assert self._server is not None
        through = f"/proc/{self._server.pid}/root/dev/shm"
        if os.access(through, os.X_OK, effective_ids=True):
            return through
        return _OWN_SHM if any(os.path.exists(f"{_OWN_SHM}/{region}") for region in regions) else None

    def _regions(
        self, folder: str, by_model: Mapping[ModelVersion, Sequence[_Stub]], claimed: set[str]
    ) -> Iterable[Family]:
        running = {version: its for version, its in by_model.items() if its}
        sizes = {v: sum(_allocated(f"{folder}/{stub.region}") for stub in its) for v, its in running.items()}
        yield Family.of(processes.MODEL_SHM, sizes.items())
        self._prefixes |= {_REGION_NUMBER.sub("", region) for region in self._stubs}
        prefixes = tuple(self._prefixes or (_DEFAULT_PREFIX,))
        names = {name for name in os.listdir(folder) if name.startswith(prefixes)} - claimed
        # At two readings: a region is there before its process is.
        orphaned = sum(_allocated(f"{folder}/{name}") for name in names & self._unclaimed)
        self._unclaimed = names
        yield Family.single(processes.SHM_ORPHANED, orphaned)


def _scan() -> tuple[
    dict[int, tuple[psutil.Process, str]],
    Mapping[int, Sequence[psutil.Process]],
    Sequence[_Stub],
    set[psutil.Process],
]:
    """Return all processes with their names, their children, the stubs that run, and those that are zombies."""
    visible: dict[int, tuple[psutil.Process, str]] = {}
    children: dict[int, list[psutil.Process]] = defaultdict(list)
    stubs: list[_Stub] = []
    zombies: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error), process.oneshot():
            parent, name = process.ppid(), process.name()
            visible[process.pid] = process, name
            children[parent].append(process)
            if name.startswith(_STUB[:15]):  # a zombie shows no more of it
                if process.status() == psutil.STATUS_ZOMBIE:
                    zombies.add(process)
                    continue
                words = process.cmdline()
                if len(words) > 8 and os.path.basename(words[0]) == _STUB:
                    stubs.append(_Stub(process, parent, words[1], words[2], words[8]))
    return visible, children, stubs, zombies


def _model_of(stub: _Stub, models: Collection[str]) -> ModelVersion:
    """Return the model of a stub: its folder's name, except in Triton's copy of a cloud's repository."""
    *_, model, version, _ = ("", "", *stub.path.split("/"))
    if model not in models:
        named = [name for name in models if stub.instance.startswith(f"{name}_")]
        model = max(named, key=len, default=model)
    return ModelVersion(model, version)


def _with_descendants(
    stubs: Iterable[_Stub], children: Mapping[int, Sequence[psutil.Process]]
) -> list[psutil.Process]:
    found = [stub.process for stub in stubs]
    for process in found:
        found += children.get(process.pid, ())
    return found


def _allocated(path: str) -> int:
    try:
        return os.stat(path).st_blocks * 512
    except OSError:
        return 0
