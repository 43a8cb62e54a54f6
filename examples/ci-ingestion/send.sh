#!/bin/sh
# An upload, its retry, another run, an upload for a repository of another caller, and one by an unknown caller.
set -eu
cd "$(dirname "$0")"
hookonce=${HOOKONCE:-http://127.0.0.1:3142}

upload() { # label, caller, repo_id, run_id
    body='{"repo_id":"'$3'","commit_sha":"a9119552","run_id":"'$4'","framework":"jest","tests":[]}'
    signature=$(printf %s "$body" | openssl dgst -sha256 -hmac "$(cat callers/acme)" | sed 's/.* //')
    printf '%-20s' "$1"
    curl -sS "$hookonce/api/ingestion" -w ' %{http_code}\n' -H 'content-type: application/json' \
        -H "authorization: Bearer $2" -H "x-fr-sig: $signature" -d "$body"
}

upload 'an upload'         acme    acme  ' 9912 '
upload 'its retry'         acme    acme  '9912'
upload 'without a run id'  acme    acme  ''
upload 'for another repo'  acme    other '9912'
upload 'unknown caller'    mallory acme  '9912'
