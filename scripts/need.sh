#!/usr/bin/env bash
# Sees to what a build needs on Debian 12 or a relative: a C compiler with headers (ring has C in
# it, and Rust links with it), make, Rust, free disk. Silent when all is there; never asks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:${HOME:-/root}/.cargo/bin"

say() { printf 'need: %s\n' "$*"; }
fail() {
    printf 'need: %s\n' "$*" >&2
    exit 1
}

# Everything below writes a little into the temporary folder; a full one must not look like a
# missing compiler.
log=$(mktemp 2>/dev/null) && head -c 65536 /dev/zero 2>/dev/null >"$log" || {
    rm -f "${log:-}"
    fail "the temporary folder ${TMPDIR:-/tmp} is missing or full; free some of it, or set TMPDIR to another folder"
}
trap 'rm -f "$log"' EXIT

# Runs a command that may be long and is only interesting when it fails.
quietly() {
    "$@" >"$log" 2>&1 && return
    tail -n 5 "$log" >&2
    return 1
}

compiles_c() {
    # No pipe: a compiler that ends before it has read all would break it.
    command -v cc >/dev/null &&
        cc -x c -o "$log" - <<<$'#include <stdlib.h>\nint main(void) { return 0; }' 2>/dev/null
}

need_packages() {
    local packages=() as=()
    compiles_c || packages+=(gcc libc6-dev)
    command -v make >/dev/null || packages+=(make)
    [ ${#packages[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        fail "a C compiler with its headers and make are needed and there is no apt-get here; install them (Debian calls them: ${packages[*]}) and try again"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null && sudo -n true 2>/dev/null ||
            fail "something is missing and this user may not install it; run: sudo apt-get install -y ${packages[*]}"
        as=(sudo -n)
    fi
    local apt=("${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120)
    say "reading the lists of packages"
    quietly "${apt[@]}" update || say "the lists could not be read; trying with those of before"
    say "installing ${packages[*]}"
    quietly "${apt[@]}" install -y --no-install-recommends "${packages[@]}" ||
        fail "apt-get could not install ${packages[*]}; see the lines above, then try again"
    compiles_c || fail "cc still compiles nothing; look at: echo 'int main(void){}' | cc -x c -o /dev/null -"
}

need_rust() {
    local channel have want
    command -v cargo >/dev/null ||
        fail "Rust is missing; install rustup as https://rustup.rs says and try again"
    channel=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
    if command -v rustup >/dev/null; then
        [ -z "${RUSTUP_TOOLCHAIN:-}" ] || return 0
        # No `grep -q`: it would end at the first match and break the pipe of rustup.
        rustup toolchain list 2>/dev/null | grep "^$channel" >/dev/null && return
        say "fetching Rust $channel, which rust-toolchain.toml names"
        quietly rustup toolchain install "$channel" --profile minimal -c rustfmt -c clippy ||
            fail "rustup could not fetch Rust $channel; see the lines above, then try again"
        return
    fi
    want=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    have=$(cargo --version | cut -d ' ' -f 2)
    [ "$(printf '%s\n' "$want" "$have" | sort -V | head -n 1)" = "$want" ] ||
        fail "Rust $want or newer is needed and this one is $have; install rustup as https://rustup.rs says and try again"
}

need_disk() {
    local target=${CARGO_TARGET_DIR:-target} gib=6 free_kib
    # What an earlier build wrote needs no space again.
    [ -e "$target/debug/larder" ] && gib=1
    while [ ! -e "$target" ]; do target=$(dirname "$target"); done
    free_kib=$(df -Pk "$target" | awk 'NR == 2 { print $4 }')
    [ "$free_kib" -ge $((gib * 1024 * 1024)) ] ||
        fail "a build needs $gib GiB of free disk and $(realpath "$target") has $((free_kib / 1024)) MiB; free some, or set CARGO_TARGET_DIR to a folder on a larger disk"
}

# Kubernetes is compiled by Go and runs as root in namespaces of its own; its other programs are
# packages, which the tool installs.
need_cluster() {
    local go=go have want=1.26
    [ "$(id -u)" -eq 0 ] ||
        fail "a cluster on this machine needs namespaces and control groups; run it as root: sudo make demo MODE=cluster"
    command -v go >/dev/null || go=/usr/local/go/bin/go
    command -v "$go" >/dev/null ||
        fail "Go $want or newer is needed to compile Kubernetes; install it as https://go.dev/doc/install says, so that go is in the PATH, and try again"
    have=$(GOTOOLCHAIN=local "$go" env GOVERSION | sed 's/^go//; s/ .*//')
    [ "$(printf '%s\n' "$want" "$have" | sort -V | head -n 1)" = "$want" ] ||
        fail "Go $want or newer is needed to compile Kubernetes and this one is $have; install it as https://go.dev/doc/install says and try again"
}

[ "${1:-}" != cluster ] || need_cluster
need_packages
need_rust
need_disk
