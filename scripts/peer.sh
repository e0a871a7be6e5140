#!/usr/bin/env bash
# Installs the stock peer that benchmarks compare with, in a folder of its own: Mooncake's wheel
# for machines without CUDA, and the libraries of Debian that it links to. Nothing else uses them.
set -euo pipefail
folder=$1
version=0.3.13.post1

fail() {
    printf 'peer: %s\n' "$*" >&2
    exit 1
}

loads() { "$folder/bin/python" -c 'import mooncake.store' 2>/dev/null; }

if [ -x "$folder/bin/python" ] && loads; then
    exit 0
fi
command -v python3 >/dev/null || fail "python3 is needed; install it and try again"
mkdir -p "$folder"
python3 -m venv "$folder" || fail "python3 -m venv failed; install python3-venv and try again"
"$folder/bin/pip" install --quiet "mooncake-transfer-engine-non-cuda==$version" ||
    fail "pip could not install the wheel of the peer; run without PEER to measure without it"
loads && exit 0
packages=(libibverbs1 librdmacm1 libnuma1 libcurl4)
[ "$(id -u)" -eq 0 ] || fail "the peer needs libraries; run: sudo apt-get install -y ${packages[*]}"
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" >/dev/null ||
    fail "apt-get could not install ${packages[*]}"
loads || fail "the peer's library still does not load; run: $folder/bin/python -c 'import mooncake.store'"
