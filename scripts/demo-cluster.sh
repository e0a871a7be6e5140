#!/usr/bin/env bash
# The tour of `make demo MODE=cluster`: real Kubernetes on this machine, the operator, a pool, bytes
# from a pod on one node to a pod on another, what is refused, a node more and a node less, and
# nothing left behind. KEEP=1 leaves the cluster up.
set -euo pipefail

built=$(cd "${1:?usage: demo-cluster.sh FOLDER_OF_PROGRAMS}" && pwd)
# A pool that the user's own environment names is none of the demo's business; where the cluster
# keeps its files is.
for name in ${!LARDER_*}; do
    [[ $name == LARDER_CLUSTER_* ]] || unset "$name"
done
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pool="$top/manifests/samples/pool-small.yaml"
. "$top/scripts/tour.sh"
# Two images of the stripped programs, and two files of 8 MiB.
tour_begin 320
count=${DEMO_OBJECTS:-100}
system=larder-system
namespace=cache
cluster="$built/cluster"
# Images and pods of a busy machine with two cores need tens of seconds; only what is broken needs
# longer than this.
patience=240s
is_up=''
claim=''

release() {
    [ -z "$claim" ] || { kill "$claim" && wait "$claim"; } 2>/dev/null || true
}

finish() {
    local status=$?
    trap - EXIT
    # A second interruption must not leave half a cluster.
    trap '' INT TERM HUP
    tour_tell "$status"
    if [ -n "$is_up" ] && [ "$status" -ne 0 ] && [ "$status" -ne 130 ]; then
        explain >&2 || true
    fi
    release
    if [ -n "$is_up" ] && [ -n "${KEEP:-}" ]; then
        printf '\nThe cluster stays up:\n  export KUBECONFIG=%s\n  %s kubectl get pods -A\n  %s down\n' \
            "$("$cluster" kubeconfig)" "$cluster" "$cluster" >&2
    elif [ -n "$is_up" ]; then
        printf '\nTaking the cluster down\n' >&2
        "$cluster" down || status=1
    fi
    rm -rf "$home"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# What a person would look at first.
explain() {
    printf '\nPods:\n'
    "$cluster" kubectl get pods -A -o wide | sed 's/^/  /'
    printf 'Conditions of the pool:\n'
    conditions | sed 's/^/  /'
    printf 'Warnings:\n'
    "$cluster" kubectl get events -A --field-selector type=Warning \
        -o 'custom-columns=OBJECT:.involvedObject.name,REASON:.reason,MESSAGE:.message' |
        tail -n 8 | sed 's/^/  /'
    for place in "$system operator" "$namespace master" "$namespace agent"; do
        printf 'The last of the %s:\n' "${place#* }"
        "$cluster" kubectl logs -n "${place% *}" --prefix --tail 5 \
            -l "app.kubernetes.io/component=${place#* }" 2>&1 | sed 's/^/  /'
    done
}

# Runs a command whose errors go to the terminal and to a file, so that a failed step can tell.
told() {
    "$@" 2> >(tee -a "$home/errors" >&2) | sed 's/^/  /'
}

# Shows a command of kubectl and runs it in the demo's namespace.
k() {
    printf '$ kubectl %s\n' "$*"
    told "$cluster" kubectl -n "$namespace" "$@"
}

# Shows a command and runs it in an engine's pod.
in_pod() {
    local pod=$1
    shift
    printf '%s$ %s\n' "$pod" "$*"
    told "$cluster" kubectl -n "$namespace" exec "$pod" -- "$@"
}

# Runs a command in an engine's pod that must be refused, with the exit code that says so.
refused() {
    local code=$1 pod=$2
    shift 2
    tour_refused "$code" "($pod) $*" "$cluster" kubectl -n "$namespace" exec "$pod" -- "$@"
}

value() { "$cluster" kubectl -n "$namespace" get "$@"; }

conditions() {
    value cachepool pool-small -o 'jsonpath={range .status.conditions[*]}{.type}{"\t"}{.status}{"\t"}{.reason}{"\t"}{.message}{"\n"}{end}' |
        column -t -s $'\t' 2>/dev/null || true
}

wait_for() {
    local condition=$1
    shift
    k wait --for="$condition" --timeout="$patience" "$@"
}

# A pod that does what an engine does: a ServiceAccount's token for Larder, its tenant's ConfigMap,
# the socket's folder of its node. It is nobody special.
engine() {
    local name=$1 account=$2 tenant=$3 node=$4
    cat <<END
apiVersion: v1
kind: Pod
metadata: {name: $name, labels: {app: engine}}
spec:
  serviceAccountName: $account
  nodeName: $node
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001}
  containers:
    - name: engine
      image: localhost/engine:e2e
      imagePullPolicy: Never
      envFrom: [{configMapRef: {name: $tenant-connection}}]
      volumeMounts:
        - {name: larder-token, mountPath: /var/run/larder-token, readOnly: true}
        - {name: larder-socket, mountPath: /run/larder/$namespace.pool-small, readOnly: true}
        - {name: work, mountPath: /scratch}
  volumes:
    - name: larder-token
      projected: {sources: [{serviceAccountToken: {audience: larder.$namespace.pool-small, path: token}}]}
    - name: larder-socket
      hostPath: {path: /run/larder/$namespace.pool-small, type: Directory}
    - {name: work, emptyDir: {}}
---
END
}

at 'Kubernetes, compiled from its sources (once; then it is kept)'
if "$cluster" kubeconfig >/dev/null 2>&1; then
    printf 'a cluster is up on this machine already, and there can be one; take it down with: %s down\n' \
        "$cluster" | tee "$home/errors" >&2
    exit 1
fi
"$cluster" packages
"$cluster" build | sed 's/^/  /'

at 'A control plane and three nodes, each with containerd and kubelet'
is_up=1
told "$cluster" up --nodes 3
# Whoever else wants a cluster waits until this process ends.
(exec 9</sys/fs && flock --nonblock 9 && exec sleep infinity) &
claim=$!
"$cluster" kubectl get nodes -o wide | cut -c 1-100 | sed 's/^/  /'

at 'The image on every node: there is no registry'
told "$cluster" product-images --programs "$built" --name localhost/larder:0.1.0 "$home"
for image in product engine; do
    told "$cluster" load-image "$home/$image.tar"
done

at 'Custom resources and the operator, as the chart makes them'
printf '$ kubectl apply --server-side -k manifests\n'
told "$cluster" kubectl apply --server-side -k "$top/manifests"
namespace=$system wait_for condition=Available deployment/larder-operator

at 'A pool on two nodes and its tenants'
k create namespace "$namespace"
k label namespace "$namespace" pod-security.kubernetes.io/enforce=privileged
k apply -f "$pool"
wait_for condition=Ready cachepool/pool-small
wait_for 'jsonpath={.status.phase}=Ready' cachepool/pool-small
wait_for condition=Ready cachenodes,cachetenants --all
k get cachepools,cachenodes,cachetenants

at 'Two pods of one tenant on two nodes, a pod of the other, and a stranger'
read -r here there < <(value cachenodes -o 'jsonpath={.items[*].spec.nodeName}{"\n"}')
printf '  team-a on %s and %s, team-b and the stranger on %s\n' "$here" "$there" "$here"
for account in team-a team-b stranger; do
    k create serviceaccount "$account"
done
{
    engine engine-1 team-a team-a "$here"
    engine engine-2 team-a team-a "$there"
    engine rival team-b team-b "$here"
    engine stranger stranger team-a "$here"
} >"$home/engines.yaml"
told "$cluster" kubectl -n "$namespace" apply -f "$home/engines.yaml"
wait_for condition=Ready pod -l app=engine

at "KV blocks: $count of 2 MiB, half put on $here and half on $there, every byte checked on the other"
half=$((count / 2))
in_pod engine-1 larder bench put --size 2Mi --count "$half" --keep --prefix one/
in_pod engine-2 larder bench put --size 2Mi --count "$half" --keep --prefix two/
in_pod engine-2 larder bench get --size 2Mi --count "$half" --keep --prefix one/
in_pod engine-1 larder bench get --size 2Mi --count "$half" --keep --prefix two/
in_pod engine-2 larder ls one/ --limit 3

at "A file of 8 MiB put on $here and got on $there, checksums compared"
head -c $((8 * 1024 * 1024)) /dev/urandom >"$home/block"
printf 'engine-1$ larder put conversation/42/layer/0 < block\n'
told "$cluster" kubectl -n "$namespace" exec -i engine-1 -- larder put conversation/42/layer/0 - <"$home/block"
in_pod engine-2 larder get conversation/42/layer/0 /scratch/back
in_pod engine-2 sha256sum /scratch/back
"$cluster" kubectl -n "$namespace" exec engine-2 -- cat /scratch/back >"$home/back"
tour_same "$home/block" "$home/back"
in_pod engine-2 larder stat

at 'A tenant whose pinned objects fill its limit is refused, with the reason'
refused 4 rival larder bench put --size 8Mi --count 12 --pin hard --keep --prefix mine/

at "Another tenant's key cannot be seen"
refused 3 rival larder exists conversation/42/layer/0

at 'A pod under another ServiceAccount reaches nothing'
refused 4 stranger larder exists conversation/42/layer/0
refused 4 stranger larder ls

at 'What Kubernetes shows of it, within half a minute'
metrics() {
    "$cluster" kubectl get --raw "/api/v1/namespaces/$namespace/services/pool-small-master:admin/proxy/metrics"
}
objects=$(metrics | awk '/^larder_master_objects[{]/ { sum += $2 } END { print sum }')
wait_for "jsonpath={.status.objects}=$objects" cachepool/pool-small
k get cachepools,cachenodes,cachetenants
printf '$ kubectl get events\n'
value events --sort-by=.lastTimestamp \
    -o 'custom-columns=OBJECT:.involvedObject.name,TYPE:.type,REASON:.reason,MESSAGE:.message' |
    grep -E '^(OBJECT|pool-small|team-)' | grep -v -- '-agent\|-master' | tail -n 12 | cut -c 1-150 | sed 's/^/  /'
printf '$ GET /metrics of the master, through the API server\n'
metrics >"$home/metrics"
grep -E '^larder_master_(objects|bytes|limit_bytes|capacity_bytes|slabs|refused_total|ready)' "$home/metrics" |
    sed 's/^/  /'

at 'The pool grows: four nodes are asked for, and there are three'
k scale cachepool/pool-small --replicas=4
wait_for 'jsonpath={.status.conditions[?(@.type=="NodesReady")].reason}=TooFewNodes' cachepool/pool-small
conditions | sed 's/^/  /'
printf '$ cluster node n4 add\n'
told "$cluster" node n4 add
for image in product engine; do
    told "$cluster" load-image --node n4 "$home/$image.tar"
done
wait_for 'jsonpath={.status.nodes.ready}=4' cachepool/pool-small
k get cachepools,cachenodes

at 'It shrinks: the emptiest nodes go, and what they hold moves to the others first'
k scale cachepool/pool-small --replicas=3
wait_for 'jsonpath={.status.nodes.ready}=3' cachepool/pool-small
wait_for 'jsonpath={.status.nodes.desired}=3' cachepool/pool-small
k scale cachepool/pool-small --replicas=2
wait_for 'jsonpath={.status.nodes.ready}=2' cachepool/pool-small
wait_for 'jsonpath={.status.conditions[?(@.type=="ScaleInBlocked")].reason}=NothingToRemove' cachepool/pool-small
k get cachenodes
in_pod engine-2 larder bench get --size 2Mi --count "$half" --keep --prefix one/
in_pod engine-1 larder bench get --size 2Mi --count "$half" --keep --prefix two/

at 'The pool is deleted, and nothing is left'
uid=$(value cachepool pool-small -o 'jsonpath={.metadata.uid}')
k delete pod -l app=engine --wait=true
k delete -f "$pool" --wait=true --timeout="$patience"
wait_for delete pod -l larder.dev/pool-uid="$uid"
wait_for delete all,configmap,secret,serviceaccount,rolebinding -l larder.dev/pool-uid="$uid"
left() {
    "$cluster" kubectl get all,configmap,secret,serviceaccount,role,rolebinding,controllerrevision,cachepool,cachenode,cachetenant \
        -n "$namespace" -l "larder.dev/pool-uid=$uid" -o name
    "$cluster" kubectl get clusterrolebinding -l "larder.dev/pool-uid=$uid" -o name
    "$cluster" kubectl get nodes -l "pool.larder.dev/$uid" -o name
    local node
    for node in n1 n2 n3 n4; do
        # Folders of the pool, its programs, and memory that a process still holds.
        "$cluster" node-exec "$node" sh -c '
            for path in /run/larder/* /var/lib/larder/*; do [ ! -e "$path" ] || echo "'"$node"':$path"; done
            for process in /proc/[0-9]*; do
                case $(readlink "$process/exe") in
                */larder-agent | */larder-master) echo "'"$node"':$process" ;;
                esac
                ls -l "$process/fd" 2>/dev/null | grep -o "/memfd:larder[^ ]*" | sed "s|^|'"$node"':|"
            done
            true'
    done
}
printf '  objects, labels of nodes, folders, processes and memory files of the pool:'
left >"$home/left"
if [ -s "$home/left" ]; then
    printf '\n'
    tee "$home/errors" <"$home/left" >&2
    exit 1
fi
printf ' none\n'
bold 'Done: everything above was real. Next: docs/kubernetes.md.'
