#!/bin/sh
# Process 1 of the guest: the host's files, read-only, the test's folder at /mnt, and control groups of version 2. Runs
# /mnt/job.sh, and then the guest ends.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/run
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mount -t hostfs folder /mnt -o "$FOLDER"
mount -t cgroup2 groups /sys/fs/cgroup
mount -t tmpfs devices /dev
mkdir /dev/shm
mknod /dev/null c 1 3
mknod /dev/zero c 1 5
mknod /dev/random c 1 8
mknod /dev/urandom c 1 9
mknod /dev/kmsg c 1 11
exec >/mnt/guest.log 2>&1 </dev/null
hostname guest
ip link set lo up
sh /mnt/job.sh
python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'
