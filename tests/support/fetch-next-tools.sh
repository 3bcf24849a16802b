#!/bin/sh
# Fetch the newer Prometheus, Alertmanager and vmalert (Debian sid) into a folder, without installing them:
# the rules and configurations must work on both. Usage: fetch-next-tools.sh DIR. Needs apt; changes nothing else.
set -eu
dir=$1
bin=$dir/usr/bin
[ -x "$bin/prometheus" ] && [ -x "$bin/prometheus-alertmanager" ] && [ -x "$bin/vmalert" ] && [ -x "$bin/promtool" ] && exit 0
command -v apt-get >/dev/null 2>&1 || { echo "no apt here: tests of newer versions will be skipped" >&2; exit 1; }

mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
dir=$(cd "$dir" && pwd)
# The machine's own mirror, with the suite replaced.
mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
[ -n "$mirror" ] || mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*debian\/*\) .*/\2/p' /etc/apt/sources.list 2>/dev/null | head -n 1)
[ -n "$mirror" ] || { echo "no Debian mirror configured: tests of newer versions will be skipped" >&2; exit 1; }
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$dir/apt/sources.list"
apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$dir/apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$dir/apt/lists" -o Dir::Cache="$dir/apt/cache" -o APT::Sandbox::User=root "$@"
}
apt update
cd "$dir/apt"
apt download prometheus promtool prometheus-alertmanager victoria-metrics
for package in ./*.deb; do dpkg -x "$package" "$dir"; done
rm -rf "$dir/apt"
