# Shared by the demos, which source it: a temporary folder `home`, headings, `step` for what is
# under way, and `$home/errors` for what the last failure said.

# What a demo writes: a file of 8 MiB and a copy, beside logs and notes; images need more.
tour_begin() {
    local need_mib=$1
    home=$(mktemp -d "${TMPDIR:-/tmp}/larder-demo.XXXXXX" 2>/dev/null) || {
        echo "The temporary folder ${TMPDIR:-/tmp} cannot be written; set TMPDIR to another folder." >&2
        exit 1
    }
    if [ "$(df -Pm "$home" | awk 'NR == 2 { print $4 }')" -lt "$need_mib" ]; then
        rmdir "$home"
        echo "The temporary folder ${TMPDIR:-/tmp} has less than $need_mib MiB free; free some of it, or set TMPDIR to another folder." >&2
        exit 1
    fi
    step='starting'
}

bold() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

at() {
    step=$*
    : >"$home/errors"
    bold "$step"
}

# The exit status of the demo, and where it stopped.
tour_tell() {
    local status=$1
    if [ "$status" -eq 130 ]; then
        printf '\nInterrupted at: %s\n' "$step" >&2
    elif [ "$status" -ne 0 ]; then
        printf '\nThe demo stopped at: %s\n' "$step" >&2
        if [ -s "$home/errors" ]; then
            printf 'What was said:\n' >&2
            tail -n 5 "$home/errors" | sed 's/^/  /' >&2
        fi
    fi
}

# Shows a line as if it was typed, runs what follows it, and fails unless its exit code is CODE.
tour_refused() {
    local code=$1 line=$2 status=0
    shift 2
    printf '$ %s\n' "$line"
    "$@" >"$home/out" 2>&1 || status=$?
    sed 's/^/  /' "$home/out"
    cp "$home/out" "$home/errors"
    if [ "$status" -ne "$code" ]; then
        printf 'expected exit code %s, got %s\n' "$code" "$status" | tee -a "$home/errors" >&2
        return 1
    fi
    printf '  (exit code %s)\n' "$status"
    : >"$home/errors"
}

# Two files of the same bytes, or the end.
tour_same() {
    local put got
    put=$(sha256sum <"$1")
    got=$(sha256sum <"$2")
    printf '  put %s\n  got %s\n' "${put%% *}" "${got%% *}"
    [ "$put" = "$got" ] || {
        echo 'the checksums differ' | tee -a "$home/errors" >&2
        return 1
    }
}
