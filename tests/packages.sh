#!/usr/bin/env bash
# Builds what a release consists of (./package), and uses each thing as a stranger would.
#
#   ./test --packages          the binary in an empty root, the Debian package in a bare Debian, the image's own files
#   ./test --packages --twice  also builds HEAD a second time, in another folder, and compares every byte
#
# Needs root, for chroot and debootstrap; some 5 GB under TMPDIR (/var/tmp), and the network.
# Exit 0: everything passed. 1: something failed. 2: it cannot be tested here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work="" node="" receiver="" twice="" mounted=()
readonly OUT=$PWD/target/package
version=$(sed -n '/^\[package\]/,/^\[lib\]/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
arch=$(uname -m)

main() {
    [[ ${1:-} != --twice ]] || twice=1
    ((EUID == 0)) || cannot "chroot and debootstrap need root: run it with sudo"
    need debootstrap buildah curl openssl jq
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    work=$(mktemp -d "${TMPDIR:-/var/tmp}/hookonce-packages.XXXXXX")
    chmod 755 "$work"

    start_receiver

    step "Building" ./package
    step "Licences, bans and sources of the crates" supply_chain
    step "A package for a registry" registry_package
    step "The archive and its checksums" the_archive
    step "The binary in an empty root" an_empty_root
    step "The Debian package in a bare Debian" a_bare_debian
    step "The container image" the_image
    step "The compose file and its proxy" the_compose_file
    [[ ! $twice ]] || step "A second build gives the same bytes" the_same_bytes
    printf '\nThe packages are fine, after %d:%02d.\n' $((SECONDS / 60)) $((SECONDS % 60))
}

step() {
    local title=$1 start=$SECONDS
    shift
    printf '\n== %s\n' "$title"
    # Not in a condition, where `set -e` would not hold.
    "$@"
    printf -- '-- %s: %d s\n' "$title" $((SECONDS - start))
}

cannot() {
    printf 'Cannot test here: %s.\n' "$1" >&2
    exit 2
}

fail() {
    printf 'FAILED: %s\n' "$1" >&2
    exit 1
}

# The text has this part.
has() {
    [[ $1 == *"$2"* ]] || fail "\"$2\" is not in: $1"
}

need() {
    local program missing=()
    for program in "$@"; do
        command -v "$program" >/dev/null || missing+=("$program")
    done
    ((${#missing[@]})) || return 0
    echo "Missing here, to be installed with apt-get: ${missing[*]}."
    apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        cannot "apt-get could not install ${missing[*]}"
}

supply_chain() {
    if ! cargo deny --version >/dev/null 2>&1 && [[ ! -x target/tools/deny/bin/cargo-deny ]]; then
        echo "Missing here, to be installed with cargo into target/tools/deny: cargo-deny."
        cargo install --quiet --locked --debug --root target/tools/deny cargo-deny@0.20.2 || cannot "cargo could not install cargo-deny"
    fi
    PATH="$PWD/target/tools/deny/bin:$PATH" cargo deny --offline --log-level error check bans licenses sources
}

# What `cargo install hookonce` would get: the sources, and none of the big fixtures.
registry_package() {
    local files
    files=$(cargo package --list --allow-dirty --offline)
    # Where ./package puts its own things is where cargo would put this.
    cargo package --no-verify --allow-dirty --offline --quiet --target-dir target/registry
    ! grep -E '^(tests|benches|fuzz|contrib|proptest-regressions)/' <<<"$files" || fail "these files are of no use to those who install"
    has "$files" "src/config/presets/github.toml"
    stat -c '%s bytes in %n' "target/registry/package/hookonce-$version.crate"
}

the_archive() {
    local name=hookonce-$version-$arch-linux
    (cd "$OUT" && sha256sum --check --quiet SHA256SUMS)
    tar -xzf "$OUT/$name.tar.gz" -C "$work"
    has "$("$work/$name/hookonce" --version)" "hookonce $version"
    has "$("$work/$name/hookonce" version --verbose)" "(musl, static)"
    has "$("$work/$name/hookonce" version --verbose)" "(fdatasync)"
    [[ -s $work/$name/man/hookonce-serve.1 && -s $work/$name/completions/_hookonce ]] || fail "the archive lacks its texts"
    jq -e '.components | length > 200' "$OUT/$name.cdx.json" >/dev/null || fail "the SBOM has few components"
}

# Starts a node with a command, waits until it is ready, delivers one event twice, and stops it.
#   acts_once HOOKONCE CONFIG COMMAND...   the binary and the config, to look from outside; and how the node is started
acts_once() {
    local hookonce=$1 config=$2 log=$work/node.log try
    shift 2
    export WEBHOOK_SECRET=a-secret-for-this-test-alone
    ! "$hookonce" healthcheck --config "$config" 2>/dev/null || fail "something else listens on the admin port"
    "$@" >"$log" 2>&1 &
    node=$!
    for try in {1..100}; do
        "$hookonce" healthcheck --config "$config" >/dev/null 2>&1 && break
        kill -0 "$node" 2>/dev/null && ((try < 100)) || { cat "$log" && fail "the node is not ready"; }
        sleep 0.1
    done
    has "$("$hookonce" send --config "$config" --source github --sample --times 2 2>&1)" "duplicate"
    for try in {1..100}; do
        [[ "$("$hookonce" list --config "$config" --state done)" == *app* ]] && break
        ((try < 100)) || { cat "$log" && fail "the event did not end"; }
        sleep 0.1
    done
    stop_node
    [[ $(wc -l <"$work/received") == 1 ]] || fail "the receiver got $(wc -l <"$work/received") requests, and not one"
    : >"$work/received"
    ! "$hookonce" healthcheck --config "$config" 2>/dev/null || fail "a node that has stopped is not ready"
}

# SIGTERM to the node itself, below whatever started it.
stop_node() {
    local pid=$node child
    while child=$(pgrep --parent "$pid" | head -n 1) && [[ $child ]]; do
        pid=$child
    done
    kill -TERM "$pid"
    wait "$node" || fail "the node did not stop with exit code 0"
    node=""
}

# Something to forward to, which writes a line for each request.
start_receiver() {
    : >"$work/received"
    python3 - "$work/received" <<'PYTHON' &
import http.server, sys
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        open(sys.argv[1], "a").write(self.headers["idempotency-key"] + "\n")
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", 23141), Receiver).serve_forever()
PYTHON
    receiver=$!
}

small_config() {
    cat <<CONFIG
listen = "127.0.0.1:$1"
store  = "sqlite:$2/hookonce.db"
[admin]
listen = "127.0.0.1:$(($1 + 1))"
[source.github]
preset = "github"
path   = "/github"
secret = { env = "WEBHOOK_SECRET" }
[[source.github.route]]
name    = "app"
forward = { url = "http://127.0.0.1:23141/webhook" }
CONFIG
}

an_empty_root() {
    local root=$work/empty
    mkdir -p "$root"/{bin,state}
    install -m 755 "$OUT/build/$arch-unknown-linux-musl/dist/hookonce" "$root/bin/hookonce"
    small_config 23142 /state >"$root/hookonce.toml"
    has "$(chroot "$root" /bin/hookonce version --verbose)" "hookonce $version"
    chroot "$root" /bin/hookonce check --config /hookonce.toml >/dev/null || true
    acts_once "$root/bin/hookonce" "$root/hookonce.toml" chroot "$root" /bin/hookonce serve --config /hookonce.toml
    [[ -s $root/state/hookonce.db ]] || fail "the store is not where the config says"
}

a_bare_debian() {
    local root=$work/debian package=hookonce_${version}_$(dpkg --print-architecture).deb suite mirror start user
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    mirror=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v suite="$suite" '$1 == suite && $2 == "main" { print $3; exit }')
    [[ $suite && $mirror ]] || cannot "apt has no repository for this machine's release \"$suite\""
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 ||
        { tail -n 20 "$work/debootstrap.log" && cannot "debootstrap could not make the root"; }
    mount_into "$root"
    cp "$OUT/$package" "$root/"

    chroot "$root" dpkg --install "/$package"
    has "$(chroot "$root" id hookonce)" "hookonce"
    has "$(stat -c '%U:%G %a' "$root/usr/bin/hookonce")" "root:root 755"
    has "$(chroot "$root" stat -c '%U:%G %a' /etc/hookonce)" "root:hookonce 2750"
    has "$(chroot "$root" stat -c '%U:%G %a' /var/lib/hookonce)" "hookonce:hookonce 750"
    [[ -s $root/usr/share/man/man1/hookonce-serve.1.gz && -s $root/usr/share/bash-completion/completions/hookonce ]] ||
        fail "the man pages or the completions are missing"
    [[ ! -e $root/etc/systemd/system/multi-user.target.wants/hookonce.service ]] || fail "installing enabled the service"
    grep -q '^ConditionPathExists=/etc/hookonce/hookonce.toml$' "$root/usr/lib/systemd/system/hookonce.service" ||
        fail "the service would start without a config"
    # systemd-analyze looks for the program here.
    sed "s|=/usr/bin/hookonce|=$root/usr/bin/hookonce|" "$root/usr/lib/systemd/system/hookonce.service" >"$work/hookonce.service"
    [[ -z $(command -v systemd-analyze) ]] || systemd-analyze verify --man=no "$work/hookonce.service"

    # The example passes `check`, as the user of the service.
    cp "$root/usr/share/doc/hookonce/examples/hookonce.toml" "$root/etc/hookonce/hookonce.toml"
    openssl rand -hex 32 | install -m 640 /dev/stdin "$root/etc/hookonce/github.secret"
    user=$(sed -n 's/^User=//p' "$root/usr/lib/systemd/system/hookonce.service")
    chroot "$root" setpriv --reuid "$user" --regid "$user" --clear-groups /usr/bin/hookonce check >/dev/null

    # The command of the unit, as its user.
    small_config 23144 /var/lib/hookonce >"$root/etc/hookonce/hookonce.toml"
    read -ra start < <(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/hookonce.service")
    acts_once "$root/usr/bin/hookonce" "$root/etc/hookonce/hookonce.toml" env STATE_DIRECTORY=/var/lib/hookonce \
        chroot "$root" setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs "${start[@]}"
    has "$(chroot "$root" stat -c %U /var/lib/hookonce/hookonce.db)" hookonce

    # An upgrade, a removal and a purge leave what was received, and what the owner wrote.
    chroot "$root" dpkg --install "/$package" >/dev/null
    [[ -s $root/var/lib/hookonce/hookonce.db ]] || fail "an upgrade removed the store"
    chroot "$root" dpkg --remove hookonce
    [[ -s $root/var/lib/hookonce/hookonce.db && -s $root/etc/hookonce/hookonce.toml && ! -e $root/usr/bin/hookonce ]] ||
        fail "a removal left or took the wrong things"
    has "$(chroot "$root" dpkg --purge hookonce 2>&1)" "/var/lib/hookonce is left as it is"
    [[ -s $root/var/lib/hookonce/hookonce.db ]] || fail "a purge removed the store"
}

mount_into() {
    mount -t proc proc "$1/proc" && mounted+=("$1/proc")
    mount --bind /dev "$1/dev" && mounted+=("$1/dev")
}

# Its files, as the container engine would lay them out, started as its user by its own entry point.
the_image() {
    local file=$OUT/hookonce-$version-$arch-image.tar.gz folder=$work/image root=$work/image-root config layer entry
    mkdir -p "$folder" "$root"
    tar -xzf "$file" -C "$folder"
    config=$folder/$(jq -r '.[0].Config' "$folder/manifest.json")
    for layer in $(jq -r '.[0].Layers[]' "$folder/manifest.json"); do
        tar -xpf "$folder/$layer" -C "$root" --numeric-owner --same-owner
    done
    jq -e '.config | .User == "65532:65532" and (.Volumes | has("/var/lib/hookonce")) and
        .Healthcheck.Test == ["CMD", "/usr/bin/hookonce", "healthcheck"] and .Cmd == ["serve"]' "$config" >/dev/null ||
        fail "the image's config is another: $(jq -c .config "$config")"
    has "$(stat -c %u:%g "$root/var/lib/hookonce")" 65532:65532
    openssl x509 -in "$root/etc/ssl/certs/ca-certificates.crt" -noout || fail "the image has no root certificates"

    mkdir -p "$root/etc/hookonce"
    small_config 23146 /var/lib/hookonce >"$root/etc/hookonce/hookonce.toml"
    chmod 755 "$root/etc/hookonce" && chmod 644 "$root/etc/hookonce/hookonce.toml"
    readarray -t entry < <(jq -r '.config | .Entrypoint[], .Cmd[]' "$config")
    local environment
    readarray -t environment < <(jq -r '.config.Env[]' "$config")
    acts_once "$root/usr/bin/hookonce" "$root/etc/hookonce/hookonce.toml" env "${environment[@]}" \
        chroot --userspec=65532:65532 --groups= "$root" "${entry[@]}"
    # Its own health check, inside.
    ! chroot --userspec=65532:65532 --groups= "$root" /usr/bin/hookonce healthcheck 2>/dev/null ||
        fail "the health check passes without a node"
}

the_compose_file() {
    python3 - contrib/compose/compose.yaml contrib/Containerfile "$version" <<'PYTHON'
import sys, yaml
compose, containerfile, version = yaml.safe_load(open(sys.argv[1])), open(sys.argv[2]).read(), sys.argv[3]
service = compose["services"]["hookonce"]
assert service["image"].endswith("hookonce:" + version), service["image"]
for volume in service["volumes"]:
    source, target = volume.split(":")[:2]
    assert source.startswith("./") or source in compose["volumes"], volume
assert "state:/var/lib/hookonce" in service["volumes"] and "VOLUME /var/lib/hookonce" in containerfile
assert compose["services"]["caddy"]["depends_on"]["hookonce"]["condition"] == "service_healthy" and "HEALTHCHECK" in containerfile
PYTHON
    WEBHOOK_SECRET=a-secret-for-this-test-alone "$OUT/build/$arch-unknown-linux-musl/dist/hookonce" check \
        --config contrib/compose/config/hookonce.toml >/dev/null
    if ! command -v caddy >/dev/null && [[ ! -x target/tools/caddy/usr/bin/caddy ]]; then
        mkdir -p target/tools/caddy
        (cd target/tools/caddy && apt-get download --quiet caddy && dpkg-deb --extract caddy_*.deb . && rm caddy_*.deb) ||
            cannot "the package caddy could not be downloaded"
    fi
    has "$(SITE=hooks.example.com PATH="$PATH:$PWD/target/tools/caddy/usr/bin" caddy adapt --config contrib/compose/Caddyfile --adapter caddyfile)" \
        '"dial":"hookonce:3142"'
}

the_same_bytes() {
    [[ -z $(git status --porcelain) ]] || fail "there are uncommitted changes, which a clone of HEAD does not have"
    git clone --quiet --no-hardlinks . "$work/another/hookonce"
    (cd "$work/another/hookonce" && ./package)
    diff "$OUT/SHA256SUMS" "$work/another/hookonce/target/package/SHA256SUMS" || fail "two builds differ"
    cat "$OUT/SHA256SUMS"
}

clean_up() {
    local code=$? path
    trap '' INT TERM HUP
    for path in $node $receiver; do
        kill -KILL "$path" 2>/dev/null && wait "$path" 2>/dev/null || true
    done
    for path in "${mounted[@]}"; do
        umount "$path" || umount --lazy "$path" || true
    done
    if [[ $work ]]; then
        if awk -v work="$work/" 'index($2, work) == 1 { found = 1 } END { exit !found }' /proc/self/mounts; then
            echo "Something is still mounted under $work, so it is not removed." >&2
        else
            rm -rf --one-file-system "$work"
        fi
    fi
    exit "$code"
}

main "$@"
