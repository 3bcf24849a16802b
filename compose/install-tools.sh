#!/bin/sh
# Make sure prometheus, promtool, alertmanager and amtool can be found: from PATH, else from apt.
# Debian names Alertmanager's binary prometheus-alertmanager; either name will do.
set -eu

missing() {
    for tool in prometheus promtool amtool; do
        command -v "$tool" >/dev/null 2>&1 || echo "$tool"
    done
    command -v alertmanager >/dev/null 2>&1 || command -v prometheus-alertmanager >/dev/null 2>&1 || echo alertmanager
}

# The first line of --version is for example: prometheus, version 2.42.0 (branch: HEAD, revision: ...)
report_versions() {
    found=""
    for tool in prometheus promtool alertmanager amtool; do
        program=$(command -v "$tool" || command -v "prometheus-$tool")
        found="$found${found:+, }$tool $("$program" --version 2>&1 | awk 'NR == 1 { print $3 }')"
    done
    echo "tritonwatch: found $found"
}

lack=$(missing | tr '\n' ' ')
if [ -z "$lack" ]; then report_versions; exit 0; fi

hint="install Prometheus (2.42 or later) and Alertmanager (0.25 or later) and put them on PATH; missing: $lack"
command -v apt-get >/dev/null 2>&1 || { echo "tritonwatch: $hint" >&2; exit 1; }
if [ "$(id -u)" -eq 0 ]; then sudo=""; elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo="sudo"
else echo "tritonwatch: need root or sudo for apt; or $hint" >&2; exit 1; fi

echo "tritonwatch: getting $lack from apt"
# Debian starts services on install; a policy of 101 keeps ports 9090 and 9093 free.
log=$(mktemp)
if ! { $sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -qq --no-install-recommends prometheus prometheus-alertmanager; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    rm -f "$log"
    echo "tritonwatch: apt failed; $hint" >&2
    exit 1
fi
rm -f "$log"
lack=$(missing | tr '\n' ' ')
[ -z "$lack" ] || { echo "tritonwatch: $hint" >&2; exit 1; }
report_versions
