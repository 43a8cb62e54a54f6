#!/bin/sh
# A change, the same change delivered again, another change, and one that is signed with a wrong secret.
set -eu
cd "$(dirname "$0")"
hookonce=${HOOKONCE:-http://127.0.0.1:3142}

deliver() { # label, hash, secret
    body='{"resource_type":"player","event":{"hash":"'$2'","common_model_id":"550e8400-e29b-41d4-a716-446655440000"}}'
    signature=$(printf %s "$body" | openssl dgst -sha256 -hmac "$3" | sed 's/.* //')
    printf '%-20s' "$1"
    curl -sS "$hookonce/in/sports" -w ' %{http_code}\n' \
        -H 'content-type: application/json' -H "x-sportsstack-signature: $signature" -d "$body"
}

deliver 'a change'        a1b2 "$(cat secret)"
deliver 'the same again'  a1b2 "$(cat secret)"
deliver 'another change'  c3d4 "$(cat secret)"
deliver 'a forged one'    e5f6 'another secret'
