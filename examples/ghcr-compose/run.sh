#!/usr/bin/env bash
# Runs a registry and a node on this machine, pushes images, and sends deliveries as GitHub does: some are lost, one comes
# late. One image is not healthy. Needs docker-registry, curl, openssl and hookonce. `bin/docker` stands in for docker.
#
#   ./run.sh           runs it and shows what docker was asked
#
# HOOKONCE sets the path of the program; PORT is the first of three ports (3142).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
hookonce=${HOOKONCE:-hookonce} port=${PORT:-3142}
registry=http://127.0.0.1:$((port + 2)) image=treejamie/app

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT
cd "$work"
cp -r "$here"/{bin,secret,compose.yaml,healthy.sh} .
sed -i "s/:5000/:$((port + 2))/" compose.yaml
{
    echo "listen = \"127.0.0.1:$port\""
    sed "s/:5000/:$((port + 2))/; s/first = \"2s\"/first = \"100ms\"/; s/within = \"1m\", every = \"2s\"/within = \"5s\", every = \"200ms\"/" "$here/hookonce.toml"
    printf '\n[admin]\nlisten = "127.0.0.1:%s"\n' $((port + 1))
} >hookonce.toml
cat >registry.yml <<END
version: 0.1
log: { level: error, accesslog: { disabled: true } }
storage: { filesystem: { rootdirectory: $work/images } }
http: { addr: "127.0.0.1:$((port + 2))" }
END
docker-registry serve registry.yml >registry.log 2>&1 &
PATH="$work/bin:$PATH" "$hookonce" serve >serve.log 2>&1 &

# Waits until a command succeeds.
until_true() {
    local what=$1 i
    shift
    for ((i = 0; i < 600; i++)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.05
    done
    echo "timed out waiting for $what" >&2
    cat serve.log registry.log >&2
    exit 1
}
until_true "the registry" curl -fs "$registry/v2/"
until_true "the node" curl -fs "http://127.0.0.1:$port/readyz"

# Pushes an image that differs by this text, as `latest`, and prints its digest.
push() {
    local config blob upload type=application/vnd.oci.image
    config='{"architecture":"amd64","os":"linux","text":"'$1'"}'
    blob=sha256:$(printf %s "$config" | sha256sum | cut -d' ' -f1)
    upload=$(curl -fsS -X POST -D - -o upload.log "$registry/v2/$image/blobs/uploads/" | sed -n 's/^location: *//Ip' | tr -d '\r')
    curl -fsS -X PUT -H 'content-type: application/octet-stream' --data-binary "$config" "$upload&digest=$blob"
    printf '{"schemaVersion":2,"mediaType":"%s.manifest.v1+json","config":{"mediaType":"%s.config.v1+json","digest":"%s","size":%s},"layers":[]}' \
        $type $type "$blob" ${#config} >manifest
    curl -fsS -X PUT -H "content-type: $type.manifest.v1+json" --data-binary @manifest "$registry/v2/$image/manifests/latest"
    echo "sha256:$(sha256sum manifest | cut -d' ' -f1)"
}

deliver() { # label, delivery id, time, tag, digest
    local body signature
    body='{"action":"published","registry_package":{"name":"app","namespace":"treejamie","updated_at":"2026-02-07T16:'$3'Z","package_version":{"id":1,"version":"'$5'","container_metadata":{"tag":{"name":"'$4'"}}}}}'
    signature=$(printf %s "$body" | openssl dgst -sha256 -hmac "$(cat secret)" | sed 's/^.* //')
    printf '%-40s' "$1"
    curl -fsS "http://127.0.0.1:$port/version/1" -H 'content-type: application/json' -H 'x-github-event: registry_package' \
        -H "x-github-delivery: $2" -H "x-hub-signature-256: sha256=$signature" -d "$body" | sed 's/"event":"[^"]*".*/…/'
    echo
}
is_running() { [ "$(cat running)" = "$1" ]; }
runs() { until_true "$1" is_running "$2"; }

first=$(push first)
deliver 'first image, its amd64 manifest' d1 20:40 ''     sha256:aa
deliver 'first image, its arm64 manifest' d2 20:40 ''     sha256:bb
deliver 'first image, latest'             d3 20:41 latest "$first"
deliver 'first image, latest again'       d4 20:42 latest "$first"
runs "the first image" "$first"

second=$(push second) # of its deliveries one arrives, and that one does not name the tag
deliver 'second image, its amd64 manifest' d5 25:40 '' sha256:cc
runs "the second image" "$second"

deliver 'first image, late'                d6 20:43 latest "$first"
deliver 'first image, Redeliver'           d3 20:41 latest "$first"

push first >pushed.log # back to the first image
deliver 'first image, latest once more'    d7 31:07 latest "$first"
runs "the first image again" "$first"

third=$(push third) # it does not become healthy
echo "$third" >unhealthy
deliver 'third image, latest'              d8 42:00 latest "$third"
deliver 'third image, latest again'        d9 42:01 latest "$third"
until_true "the roll-back" grep -q "up -d $first (rollback)" docker.log

echo "--- docker"
grep up docker.log | sed "s/$first/FIRST/; s/$second/SECOND/; s/$third/THIRD/" | uniq
