#!/usr/bin/env bash
# Runs an edge, a stream and a worker on this machine, and sends three deliveries, one of them a repeat. Needs nats-server,
# curl, openssl and hookonce.
#
#   ./run.sh           runs it and shows the result
#
# HOOKONCE and NATS_SERVER set the paths of these programs; PORT is the first of five ports (3142).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
hookonce=${HOOKONCE:-hookonce} port=${PORT:-3142}
export GITHUB_WEBHOOK_SECRET=${GITHUB_WEBHOOK_SECRET:-"It's a Secret to Everybody"}
export NATS_URL=nats://127.0.0.1:$((port + 4))

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT
cd "$work"
mkdir edge worker
cp "$here"/*.sh worker/
for name in edge worker; do
    sed -e "s/:3142/:$port/; s/:3143/:$((port + 1))/; s/:3144/:$((port + 2))/; s/:3145/:$((port + 3))/" \
        "$here/$name.toml" >"$name/hookonce.toml"
done

"${NATS_SERVER:-nats-server}" -a 127.0.0.1 -p $((port + 4)) -js -sd "$work/data" >nats.log 2>&1 &
# The worker creates the stream and its consumer; the edge only publishes.
(cd worker && exec "$hookonce" serve >serve.log 2>&1) &
(cd edge && exec "$hookonce" serve >serve.log 2>&1) &

# Waits until a command succeeds.
until_true() {
    local what=$1 i
    shift
    for ((i = 0; i < 600; i++)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.05
    done
    echo "timed out waiting for $what" >&2
    cat edge/serve.log worker/serve.log nats.log >&2
    exit 1
}
until_true "the worker" grep -q taking worker/serve.log
until_true "the edge" curl -fs "http://127.0.0.1:$port/readyz"

deliver() { # kind, delivery id, body
    local signature
    signature=$(printf %s "$3" | openssl dgst -sha256 -hmac "$GITHUB_WEBHOOK_SECRET" | sed 's/^.* //')
    curl -fs "http://127.0.0.1:$port/webhooks/github" -H "Content-Type: application/json" -H "X-GitHub-Event: $1" \
        -H "X-GitHub-Delivery: $2" -H "X-Hub-Signature-256: sha256=$signature" --data-binary "$3"
    echo
}
opened='{"action":"opened","number":7,"pull_request":{},"repository":{"full_name":"octocat/hello"}}'
deliver pull_request 22222222-aaaa "$opened"
deliver pull_request 22222222-aaaa "$opened"
deliver push 33333333-aaaa '{"ref":"refs/heads/main","after":"6dcb09b5","commits":[],"repository":{"full_name":"octocat/hello"}}'

until_true "the comment" test -s worker/comments.txt
until_true "the sync" test -s worker/syncs.txt
(cd worker && "$hookonce" list)
echo "--- comments"
cat worker/comments.txt
echo "--- syncs"
cat worker/syncs.txt
