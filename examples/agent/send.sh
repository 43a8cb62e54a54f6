#!/bin/sh
# Three pushes to one pull request within a second, the last of them delivered five times; then a push to each of two more.
set -eu
cd "$(dirname "$0")"
hookonce=${HOOKONCE:-http://127.0.0.1:3142}

deliver() { # label, delivery id, pull request, commit
    body='{"action":"synchronize","number":'$3',"pull_request":{"head":{"sha":"'$4'"}},"repository":{"full_name":"octocat/hello"},"delivered":"'$2'"}'
    signature=$(printf %s "$body" | openssl dgst -sha256 -hmac "$(cat secret)" | sed 's/.* //')
    printf '%-18s' "$1"
    curl -sS "$hookonce/agent" -w ' %{http_code}\n' \
        -H 'content-type: application/json' -H 'x-github-event: pull_request' \
        -H "x-github-delivery: $2" -H "x-hub-signature-256: sha256=$signature" -d "$body"
}
billed() { # how many runs
    for _ in $(seq 600); do
        if [ -e bill ] && [ "$(wc -l <bill)" -ge "$1" ]; then return; fi
        sleep 0.1
    done
    echo "the agent was not started" >&2
    exit 1
}

deliver '#7, a push'       d1 7 c0ffee1
deliver '#7, the next'     d2 7 c0ffee2
deliver '#7, the third'    d3 7 c0ffee3
deliver 'a copy'           d4 7 c0ffee3
deliver 'a copy'           d5 7 c0ffee3
deliver 'a copy'           d6 7 c0ffee3
deliver 'Redeliver'        d3 7 c0ffee3
billed 1
deliver '#8, a push'       d7 8 decaf01
billed 2
deliver '#9, a push'       d8 9 facade1
echo
cat bill
