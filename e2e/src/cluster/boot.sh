# The start of an emulated machine, as process 1 in new namespaces of every kind but users.
# Arguments: its name, its /var, its machine id, and the program that stays as process 1.
set -eu
name=$1 var=$2 machine_id=$3 first=$4

echo "$name" >/proc/sys/kernel/hostname

# Its own disk and its own sockets, under their usual paths.
mount --bind "$var" /var
mount -t tmpfs -o mode=755 run /run
mkdir /run/lock

if [ -e /etc/machine-id ]; then mount --bind "$machine_id" /etc/machine-id; fi

# A fresh /sys shows the devices of this network; the control groups are mounted below the old one.
mkdir /run/sys
mount -t sysfs sysfs /run/sys
mount --rbind /sys/fs/cgroup /run/sys/fs/cgroup
mount --move /run/sys /sys
rmdir /run/sys

mount -t proc proc /proc

# Kubelets set these for the whole machine. Here they write on copies; the machine keeps its own.
mkdir /run/kernel
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    if [ -e "/proc/sys/$setting" ]; then
        copy=/run/kernel/$(echo "$setting" | tr / _)
        cat "/proc/sys/$setting" >"$copy"
        mount --bind "$copy" "/proc/sys/$setting"
    fi
done

# Kubelets tell a reboot by this.
cat /proc/sys/kernel/random/uuid >/run/kernel/boot_id
mount --bind /run/kernel/boot_id /proc/sys/kernel/random/boot_id

# These are of this network only. Pods of other machines are reached through this one; it must not
# tell the nodes of shorter ways, since there are none.
echo 1 >/proc/sys/net/ipv4/ip_forward
for scope in all default; do echo 0 >"/proc/sys/net/ipv4/conf/$scope/send_redirects"; done

# Volumes and mounts of privileged pods are seen on the machine, and the other way round.
mount --make-rshared /

echo booted
exec "$first"
