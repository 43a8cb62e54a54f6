#!/bin/sh
# One push as GitHub delivers it: the same image without a tag, as `main`, and as `latest` under two delivery ids, then a
# Redeliver.
set -eu
cd "$(dirname "$0")"
hookonce=${HOOKONCE:-http://127.0.0.1:3142}

deliver() { # label, delivery id, tag, updated_at
    body='{"action":"published","registry_package":{"name":"jamiec_ts","updated_at":"'$4'","package_version":{"id":675688875,"version":"sha256:6b5d","container_metadata":{"tag":{"name":"'$3'"}}}}}'
    signature=$(printf %s "$body" | openssl dgst -sha256 -hmac "$(cat secret)" | sed 's/.* //')
    printf '%-28s' "$1"
    curl -sS "$hookonce/version/1" -w ' %{http_code}\n' \
        -H 'content-type: application/json' -H 'x-github-event: registry_package' \
        -H "x-github-delivery: $2" -H "x-hub-signature-256: sha256=$signature" -d "$body"
}

deliver 'an attestation, no tag'   d1 ''     2026-02-07T16:20:41Z
deliver 'the tag main'             d2 main   2026-02-07T16:20:42Z
deliver 'the tag latest'           d3 latest 2026-02-07T16:20:43Z
deliver 'latest, delivered again'  d4 latest 2026-02-07T16:20:44Z
deliver 'Redeliver of the first'   d3 latest 2026-02-07T16:20:43Z
