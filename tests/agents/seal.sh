#!/bin/sh
# Runs a command as user 1000 in /home/dev/demo, in namespaces of its own: the only network is loopback, the only
# process it meets is the model service, and the home of the user who runs the tests is covered.
#
#   seal.sh HOME COVER SHOWN PORT LOG -- command...
#     HOME    becomes /home/dev
#     COVER   a folder that the command shall not see
#     SHOWN   folders that it shall see, though they may lie in COVER; separated by ":"
#     PORT    of the model service, which logs to LOG and is started by the command in $SERVICE
set -e
umask 022
if [ -z "$SEALED" ]; then
    SEALED=1; export SEALED
    exec unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc "$0" "$@"
fi
home=$1 cover=$2 shown=$3 port=$4 log=$5; shift 6
ip link set lo up
$SERVICE "$port" "$log" /home/dev/demo < /dev/null > "$log.errors" 2>&1 &
for _ in $(seq 600); do bash -c ": < /dev/tcp/127.0.0.1/$port" 2>/dev/null && break; sleep 0.1; done
mount --make-rprivate /
kept=$(mktemp -d)
mount -t tmpfs tmpfs "$kept"
mkdir "$kept/home"
mount --bind "$home" "$kept/home"
number=0
IFS=:
for folder in $shown; do
    number=$((number + 1)); mkdir "$kept/$number"; mount --bind "$folder" "$kept/$number"
done
mount -t tmpfs -o mode=755 tmpfs "$cover"
number=0
for folder in $shown; do
    number=$((number + 1)); mkdir -p "$folder"; mount --bind "$kept/$number" "$folder"
done
unset IFS
mount -t tmpfs -o mode=755 tmpfs /home
mkdir /home/dev
mount --bind "$kept/home" /home/dev
printf 'root:x:0:0:root:/root:/bin/sh\ndev:x:1000:1000:Dev:/home/dev:/bin/bash\n' > "$kept/passwd"
printf '127.0.0.1 localhost\n' > "$kept/hosts"
mount --bind "$kept/passwd" /etc/passwd
mount --bind "$kept/hosts" /etc/hosts
umount -l "$kept"
mount -t tmpfs -o mode=1777 tmpfs /tmp
chown -R 1000:1000 /home/dev
cd /home/dev/demo
setpriv --reuid=1000 --regid=1000 --clear-groups --no-new-privs "$@"
