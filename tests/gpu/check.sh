#!/bin/bash
# Try the product on a real GPU: compares the exporter with nvidia-smi and with models of a real Triton, and prints one
# line for each check. It ends within 8 minutes and leaves summary.txt and results.tar.gz in $OUT.
#
# On a bare machine it runs from a copy of the tree with .gpu-check, which `make gpu-check` prepares; it needs python3
# with numpy there, and nothing else. $GPU_CHECK_PYTHON is a Python that has everything, for a run without .gpu-check.
set -u
cd "$(dirname "$0")/../.." || exit 1
ROOT=$PWD
OUT=${OUT:-$(mktemp -d)}
WORK=$(mktemp -d)
RESULTS=$WORK/results
mkdir -p "$OUT" "$RESULTS"
OUR_PATH=$ROOT/tests:$ROOT/exporters:$ROOT/slo:$ROOT/alerts:$ROOT/dashboards:$ROOT/compose
# Where drivers are that ldconfig does not know.
export PATH=$PATH:/usr/local/nvidia/bin
DRIVER=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64:/usr/local/nvidia/lib

unpack() {
  python3 - "$ROOT/.gpu-check" "$WORK" <<'END'
import pathlib, sys, tarfile, zipfile
carried, work = map(pathlib.Path, sys.argv[1:])
for archive in sorted(carried.glob("*.tar.xz")):
    with tarfile.open(archive) as opened:
        opened.extractall(work, filter="fully_trusted")
for wheel in sorted(carried.glob("*.whl")):
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(work / "site")
END
}

# Use this Python with these libraries, if it can run Triton's models and the exporter.
choose() {
  LD_LIBRARY_PATH=$2 PYTHONPATH=$3 timeout 60 "$1" - <<'END' >>"$RESULTS/pythons.txt" 2>&1 || return 1
import bz2, ctypes, lzma, numpy, ssl, sys, zlib
import pynvml, prometheus_client, pydantic, requests, yaml
from tritonwatch.local import environment, wheel_folder
print(sys.version, environment()["LD_LIBRARY_PATH"], wheel_folder(), numpy.__file__)
END
  PYTHON=$1 LIBRARIES=$2 PACKAGES=$3
}

PYTHON=
if [ -n "${GPU_CHECK_PYTHON:-}" ]; then
  choose "$GPU_CHECK_PYTHON" "$DRIVER" "$OUR_PATH"
elif [ -d .gpu-check ]; then
  timeout 90 bash -c "$(declare -f unpack); ROOT=$ROOT WORK=$WORK; unpack" || echo "FAIL   unpack: expected .gpu-check to be unpacked, seen an error"
  there=$(timeout 60 python3 -c 'import numpy, pathlib; print(pathlib.Path(numpy.__file__).parents[1])')
  packages=$OUR_PATH:$WORK/site:$there
  carried=$WORK/python
  choose "$carried/bin/python3.12" "$carried/lib:$DRIVER" "$packages" ||
    choose "$carried/bin/python3.12" "$carried/lib:$carried/more:$DRIVER" "$packages" ||
    choose "$(command -v python3)" "$DRIVER" "$packages"
fi
if [ -z "$PYTHON" ]; then
  echo "FAIL   Python: expected one that can run the check (run make gpu-check first), seen:"
  cat "$RESULTS/pythons.txt"
  cp "$RESULTS/pythons.txt" "$OUT/summary.txt"
else
  LD_LIBRARY_PATH=$LIBRARIES PYTHONPATH=$PACKAGES PYTHONUNBUFFERED=1 \
    timeout -k 5 $((430 - SECONDS)) "$PYTHON" tests/gpu/check.py "$RESULTS" "${GPU_CHECK_SECONDS:-60}" 2>&1 | tee "$OUT/summary.txt"
  STATUS=${PIPESTATUS[0]}
fi

# What the check started and could not end itself.
[ -f "$RESULTS/processes" ] && while read -r group; do kill -9 -- "-$group" 2>/dev/null; done <"$RESULTS/processes"
find "$RESULTS" -type f -size +2M -exec truncate -s 2M {} +
(cd "$RESULTS" && rm -rf triton/backends models && timeout 40 tar -czf "$OUT/results.tar.gz" .)
rm -rf "$WORK"
echo "results: $OUT ($(du -sh "$OUT" | cut -f1))"
exit "${STATUS:-1}"
