#!/bin/sh
# Install Chromium from apt for the tests of web pages, where that needs no question; else these tests are skipped.
for program in chromium-headless-shell chromium google-chrome ${TRITONWATCH_CHROMIUM:+"$TRITONWATCH_CHROMIUM"}; do
    command -v "$program" >/dev/null 2>&1 && exit 0
done
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell >/dev/null 2>&1; }
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    install || { apt-get update -qq >/dev/null 2>&1 && install; } && exit 0
fi
echo "no Chromium here: tests of pages in a browser are skipped"
