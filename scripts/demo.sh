#!/usr/bin/env bash
# The tour of `make demo`: a pool of local processes, real bytes through the other node's agent,
# a limit that refuses, a key that another tenant cannot see, metrics, and nothing left behind.
set -euo pipefail

larder=${1:?usage: demo.sh PROGRAM}
# A pool that the user's own environment names is none of the demo's business.
for name in ${!LARDER_*}; do unset "$name"; done
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pool="$top/manifests/samples/pool-small.yaml"
. "$top/scripts/tour.sh"
tour_begin 24
run="$home/run"
count=${DEMO_OBJECTS:-100}

finish() {
    local status=$?
    trap - EXIT
    tour_tell "$status"
    if [ "$status" -ne 0 ] && [ "$status" -ne 130 ]; then
        for log in "$run"/log/*; do
            grep -qE ' (WARN|ERROR) ' "$log" 2>/dev/null || continue
            printf 'Warnings in %s:\n' "$(basename "$log")" >&2
            grep -E ' (WARN|ERROR) ' "$log" | tail -n 5 | sed 's/^/  /' >&2
        done
    fi
    "$larder" down --dir "$run" >/dev/null 2>&1 || true
    rm -rf "$home"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# Shows a command and runs it on the demo's pool. Errors go to the terminal and to a file, so that
# a failed step can tell.
larder() {
    printf '$ larder %s\n' "$*"
    "$larder" "$@" --dir "$run" 2> >(tee -a "$home/errors" >&2) | sed 's/^/  /'
}

# Runs a command that must be refused, with the exit code that says so.
refused() {
    local code=$1
    shift
    tour_refused "$code" "larder $*" "$larder" "$@" --dir "$run"
}

at 'A master and two agents, from one CachePool'
printf '$ larder up --detach -f manifests/samples/pool-small.yaml\n'
"$larder" up --detach -f "$pool" --dir "$run" 2> >(tee -a "$home/errors" >&2) | sed 's/^/  /'

at "KV blocks: $count of 2 MiB put through the agent of node 0, every byte checked through the agent of node 1"
larder bench put --tenant team-a --via pool-small-0 --size 2Mi --count "$count" --keep --prefix blocks/
larder bench get --tenant team-a --via pool-small-1 --size 2Mi --count "$count" --keep --prefix blocks/
larder ls blocks/ --tenant team-a --limit 3

at 'A file of 8 MiB there and back, checksums compared'
head -c $((8 * 1024 * 1024)) /dev/urandom >"$home/block"
larder put conversation/42/layer/0 "$home/block" --tenant team-a --via pool-small-0
larder get conversation/42/layer/0 "$home/back" --tenant team-a --via pool-small-1
tour_same "$home/block" "$home/back"

at 'A tenant whose pinned objects fill its limit is refused, with the reason'
larder stat --tenant team-b
refused 4 bench put --tenant team-b --size 8Mi --count 12 --pin hard --keep --prefix mine/

at "Another tenant's key cannot be seen"
refused 3 exists conversation/42/layer/0 --tenant team-b
refused 3 get conversation/42/layer/0 "$home/stolen" --tenant team-b

at 'A page of metrics'
admin=$("$larder" status --dir "$run" --output json | sed -n 's/.*"admin_addr": *"\([^"]*\)".*/\1/p' | head -n 1)
printf '$ GET http://%s/metrics\n' "$admin"
metrics() {
    exec 3<>"/dev/tcp/${admin%:*}/${admin##*:}"
    printf 'GET /metrics HTTP/1.0\r\nHost: %s\r\n\r\n' "$admin" >&3
    cat <&3
    exec 3>&-
}
metrics >"$home/metrics"
grep -E '^larder_master_(objects|bytes|limit_bytes|capacity_bytes|slabs|refused_total|ready)' "$home/metrics" |
    sed 's/^/  /'

at 'Stop, and see that nothing is left'
larder down
left=$(pgrep -f "$run" || true)
if [ -n "$left" ] || [ -e "$run" ]; then
    printf 'left behind: processes "%s", folder %s\n' "$left" "$run" | tee -a "$home/errors" >&2
    exit 1
fi
bold 'Done: everything above was real. Next: README.md, or larder --help.'
