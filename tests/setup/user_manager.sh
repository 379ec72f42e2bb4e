#!/bin/sh
# Runs a command beside a systemd that manages a user's services, in namespaces of its own: `user_manager.sh COMMAND...`
# Needs root and systemd. The exit code is 77 where there can be none.
set -e
systemd=/lib/systemd/systemd
[ "$(id -u)" = 0 ] && [ -x $systemd ] || exit 77
if [ -z "$GROUP" ]; then
    groups=/sys/fs/cgroup/systemd
    [ -d $groups ] || groups=/sys/fs/cgroup
    GROUP=$groups/backstory-test-$$
    export GROUP
    mkdir "$GROUP" || exit 77
    trap 'find "$GROUP" -depth -type d -exec rmdir {} +' EXIT
    unshare --net --pid --mount --fork --kill-child --mount-proc -- "$0" "$@"
    exit
fi
if [ -z "$INSIDE" ]; then
    INSIDE=1; export INSIDE
    echo 0 > "$GROUP/cgroup.procs"
    exec unshare --cgroup -- "$0" "$@"
fi
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/systemd/system "/run/user/0" # the sign of a system that systemd has started
ip link set lo up
XDG_RUNTIME_DIR=/run/user/0; export XDG_RUNTIME_DIR
$systemd --user > /dev/null 2>&1 &
for _ in $(seq 100); do
    [ "$(systemctl --user is-system-running 2> /dev/null)" = running ] && exec "$@"
    sleep 0.1
done
exit 77
