#!/bin/sh
# Make the passwords and tokens that compose/docker-compose.yml needs, each in its own file, readable by its owner's
# containers only. Run again at any time: existing files are not changed. Usage: make-secrets.sh [DIR]   (default: beside this)
set -eu
here=$(dirname "$0")
dir=${1:-$here/secrets}
umask 077
mkdir -p "$dir"
# Containers run as other users and mount single files, so the files are readable by all, and the folder is not.
chmod 700 "$dir"

keep() { # NAME: standard input becomes this file, whole or not at all
    cat >"$dir/$1.new"
    [ -s "$dir/$1.new" ] || { rm -f "$dir/$1.new"; echo "cannot make $dir/$1" >&2; exit 1; }
    chmod 444 "$dir/$1.new"
    mv "$dir/$1.new" "$dir/$1"
    echo "made $dir/$1"
}
for name in stack_password grafana_admin_password bridge_token; do
    [ -s "$dir/$name" ] || head -c 24 /dev/urandom | base64 | tr -d '\n' | tr '+/' '-_' | keep "$name"
done

# Prometheus and Alertmanager take a bcrypt hash of the password (https://prometheus.io/docs/prometheus/latest/configuration/https/).
# The stack's own image makes it, or a Python that has bcrypt.
hash='import bcrypt, sys
password = sys.stdin.buffer.read().strip()
0 < len(password) <= 72 or sys.exit("stack_password must have 1 to 72 bytes: bcrypt reads no more")
print("basic_auth_users:\n  tritonwatch:", bcrypt.hashpw(password, bcrypt.gensalt(10)).decode())'
if [ ! -s "$dir/web_config.yml" ]; then
    python=${PYTHON:-$here/../.venv/bin/python}
    if "$python" -c 'import bcrypt' 2>/dev/null; then
        "$python" -c "$hash" <"$dir/stack_password" | keep web_config.yml
    else
        # Built before it runs: while `run` builds, the progress would be part of what it prints.
        compose="docker compose -f $here/docker-compose.yml"
        docker image inspect "$($compose config --images generator)" >/dev/null 2>&1 || $compose build generator >&2
        made=$($compose run --rm -T --quiet-pull --entrypoint python generator -c "$hash" <"$dir/stack_password")
        printf '%s\n' "$made" | keep web_config.yml
    fi
fi
touch "$dir/slack_bot_token"
# Also files that you created yourself.
chmod a+r "$dir"/stack_password "$dir"/grafana_admin_password "$dir"/bridge_token "$dir"/slack_bot_token "$dir"/web_config.yml
[ -s "$dir/slack_bot_token" ] || echo "put your Slack bot token (xoxb-...) into $dir/slack_bot_token, see docs/on-call.md,
or try without Slack: write SLACK_DRY_RUN=1 into $here/.env"
