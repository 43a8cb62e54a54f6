#!/bin/sh
# A payment, the same one twice more, another one under its key, another client with the same key, and one without a key.
set -eu
cd "$(dirname "$0")"
hookonce=${HOOKONCE:-http://127.0.0.1:3142}

pay() { # label, client, amount, header
    printf '%-22s' "$1"
    curl -sS "$hookonce/payments" -w ' %{http_code}\n' -H 'content-type: application/json' \
        -H "authorization: Bearer $(cat "$2")" -H "$4" -d '{"amount":'"$3"'}'
}

pay 'a payment'             alice 10 'idempotency-key: "8e03978e"'
pay 'the same again'        alice 10 'idempotency-key: "8e03978e"'
pay 'the key, without "'    alice 10 'idempotency-key: 8e03978e'
pay 'another under it'      alice 99 'idempotency-key: "8e03978e"'
pay 'another client'        bob   20 'idempotency-key: "8e03978e"'
pay 'no key'                alice 10 'x-nothing: 1'
