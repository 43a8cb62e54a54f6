#!/usr/bin/env bash
# Runs ./test in a bare Debian root, as a newcomer would: nothing installed but a Rust toolchain, and plain `cargo test`.
#
#   ./test --bare [ARGUMENT...]   the arguments are those of the ./test inside
#
# debootstrap makes the root: the suite of this machine, from the mirror that apt uses here. It gets the toolchain of this
# machine (no registry, no cargo-nextest), the settings of apt, pip, cargo and git, and a clone of HEAD. Uncommitted changes
# are not tested. Mounts and processes are in their own namespaces, and end with them.
#
# Needs root, some 15 GB under TMPDIR (/var/tmp), and the network. Exit code: that of the ./test inside, or 2.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

root="" inside=""

main() {
    ((EUID == 0)) || cannot "a bare root needs root: run it with sudo"
    [[ -z $(git status --porcelain) ]] || echo "There are uncommitted changes. They are not tested."
    need_programs
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    root=$(mktemp -d "${TMPDIR:-/var/tmp}/hookonce-bare.XXXXXX")
    chmod 755 "$root"
    make_root
    copy_settings
    copy_rust
    git clone --quiet --no-hardlinks . "$root/hookonce" || cannot "the clone failed"

    local code=0
    run_inside "$@" || code=$?
    printf '\n./test in a bare root: exit %d after %d:%02d.\n' "$code" $((SECONDS / 60)) $((SECONDS % 60))
    exit "$code"
}

cannot() {
    printf 'Cannot test here: %s.\n' "$1" >&2
    exit 2
}

need_programs() {
    command -v unshare >/dev/null || cannot "unshare is missing; please install util-linux"
    command -v debootstrap >/dev/null && return 0
    echo "Missing here, to be installed with apt-get: debootstrap, which makes the root."
    apt-get update -qq || echo "The list of packages could not be updated; trying with the one here."
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap ||
        cannot "apt-get could not install debootstrap"
}

# The suite of this machine, from apt's mirror.
make_root() {
    local suite mirror
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    mirror=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v suite="$suite" '$1 == suite && $2 == "main" { print $3; exit }')
    [[ $suite && $mirror ]] || cannot "apt has no repository for this machine's release \"$suite\""
    echo "Making a bare root of $suite in $root."
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 || {
        tail -n 20 "$root.log"
        cannot "debootstrap could not make the root"
    }
    # Only the repositories of this machine.
    rm -f "$root/etc/apt/sources.list"
    # No package starts a server.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
}

# The network settings and trusted certificates of apt, pip, cargo and git.
copy_settings() {
    local cargo=${CARGO_HOME:-$HOME/.cargo} path name
    for path in /etc/apt /usr/share/keyrings /usr/local/share/ca-certificates /etc/ssl/certs/ca-certificates.crt \
        /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/gitconfig; do
        copy "$path" "$path"
    done
    for path in .config/pip .pip .gitconfig; do
        copy "$HOME/$path" "/root/$path"
    done
    for path in "$cargo"/config "$cargo"/config.toml; do
        copy "$path" "/root/.cargo/${path##*/}"
    done
    # A setting may be a path.
    while read -r name; do
        [[ ${!name} != /* ]] || copy "${!name}" "${!name}"
    done < <(settings)
}

# Names of the variables that these clients read.
settings() {
    compgen -e | grep -E '^(PIP_|UV_|CARGO_(HTTP|NET|REGISTR|SOURCE)|GIT_SSL_)|_CERT(_FILE|_DIR)?$|_CA_BUNDLE$|^(ALL|FTP|HTTPS?|NO|all|ftp|https?|no)_(PROXY|proxy)$' |
        grep -v _TOKEN
}

# Copies a file or a folder into the root, if it exists. Links are followed: their targets may be elsewhere.
copy() {
    [[ -e $1 ]] || return 0
    mkdir -p "$root${2%/*}"
    if [[ -d $1 ]]; then
        mkdir -p "$root$2"
        cp -RL --preserve=mode "$1/." "$root$2/" || cannot "$1 could not be copied"
    else
        rm -f "$root$2"
        cp -L --preserve=mode "$1" "$root$2" || cannot "$1 could not be copied"
    fi
}

# The toolchain of this machine, without rustup and without programs installed with cargo.
copy_rust() {
    local sysroot
    sysroot=$(rustc --print sysroot) || cannot "there is no Rust here to copy"
    [[ $sysroot != /usr && $sysroot != /usr/local ]] || cannot "Rust is installed in $sysroot, among other programs; use rustup's"
    cp -a "$sysroot/bin" "$sysroot/lib" "$root/usr/local/"
    [[ ! -d $sysroot/libexec ]] || cp -a "$sysroot/libexec" "$root/usr/local/"
}

# In the background, so that signals are handled at once. The end of `unshare` ends all processes inside.
run_inside() {
    local name pass=()
    while read -r name; do
        pass+=("$name=${!name}")
    done < <(settings)
    # shellcheck disable=SC2016 # its variables are those of the shell inside
    unshare --mount --pid --fork --kill-child bash -euc '
        root=$1
        shift
        mount -t proc proc "$root/proc"
        mount --bind /sys "$root/sys"
        mount --bind /dev "$root/dev"
        mkdir -p "$root/dev/pts" "$root/dev/shm"
        mount --bind /dev/pts "$root/dev/pts"
        mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
        chroot "$root" "$@"
    ' bash "$root" env -i "${pass[@]}" HOME=/root TERM="${TERM:-dumb}" ${HOOKONCE_SEED:+HOOKONCE_SEED="$HOOKONCE_SEED"} \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /hookonce/test "$@" </dev/null &
    inside=$!
    wait "$inside"
}

clean_up() {
    local code=$?
    trap '' INT TERM HUP
    if [[ $inside ]] && kill -KILL "$inside" 2>/dev/null; then
        wait "$inside" 2>/dev/null || true
    fi
    [[ $root ]] || exit "$code"
    # Mounts of this machine, perhaps made by debootstrap. If one remains, nothing is removed.
    local mounted
    for mounted in $(mounts | sort -r); do
        umount "$mounted" || true
    done
    if [[ $(mounts) ]]; then
        printf 'Still mounted, so nothing is removed: %s\n' "$(mounts | tr '\n' ' ')" >&2
    else
        # The processes inside may take a moment to end.
        local try
        for try in 1 2 3 4 5; do
            rm -rf --one-file-system "$root" "$root.log" 2>/dev/null && break
            ((try < 5)) || echo "$root could not be removed." >&2
            sleep 1
        done
    fi
    exit "$code"
}

# The mounts in the root or below.
mounts() {
    awk -v root="$root" '$2 == root || index($2, root "/") == 1 { print $2 }' /proc/self/mounts
}

main "$@"
