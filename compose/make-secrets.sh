#!/bin/sh
# Make the passwords and tokens that compose/docker-compose.yml needs, each in its own file, readable by its owner's
# containers only. Run again at any time: what exists is kept. Usage: make-secrets.sh [DIR]   (default: beside this)
set -eu
dir=${1:-$(dirname "$0")/secrets}
umask 077
mkdir -p "$dir"
# Containers run as other users than yours and are handed single files, so those are readable; the folder is not.
chmod 700 "$dir"

python=${PYTHON:-python3}
[ -x "$(dirname "$0")/../.venv/bin/python" ] && python=$(dirname "$0")/../.venv/bin/python

new() {
    [ -s "$dir/$1" ] && return 0
    "$python" -c 'import secrets; print(secrets.token_urlsafe(24), end="")' >"$dir/$1.new"
    chmod 444 "$dir/$1.new"
    mv "$dir/$1.new" "$dir/$1"
    echo "made $dir/$1"
}
new stack_password
new grafana_admin_password
new bridge_token

if [ ! -s "$dir/web_config.yml" ]; then
    "$python" - "$dir/stack_password" >"$dir/web_config.yml.new" <<'PY' || {
import sys
try:
    import bcrypt
except ModuleNotFoundError:
    sys.exit("the Python package bcrypt is needed to hash the password; `make setup` installs it")
password = open(sys.argv[1], "rb").read()
hashed = bcrypt.hashpw(password, bcrypt.gensalt(10)).decode()
print("# Prometheus and Alertmanager: basic auth, https://prometheus.io/docs/prometheus/latest/configuration/https/")
print(f"basic_auth_users:\n  tritonwatch: {hashed}")
PY
        rm -f "$dir/web_config.yml.new"
        exit 1
    }
    chmod 444 "$dir/web_config.yml.new"
    mv "$dir/web_config.yml.new" "$dir/web_config.yml"
    echo "made $dir/web_config.yml"
fi
[ -s "$dir/slack_bot_token" ] || echo "put your Slack bot token (xoxb-...) into $dir/slack_bot_token, see docs/on-call.md"
