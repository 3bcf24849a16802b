#!/bin/sh
# Install Chromium from apt for the tests of web pages, where that needs no question; else these tests are skipped.
command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || [ -n "${TRITONWATCH_CHROMIUM:-}" ] && exit 0
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; }
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    install || { apt-get update -qq >/dev/null 2>&1 && install; } && exit 0
fi
echo "no Chromium here: tests of pages in a browser are skipped"
