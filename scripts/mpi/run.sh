#!/bin/bash
# A job under Open MPI's mpirun, from one of its hosts:  scripts/mpi/run.sh node1,node2,node3 train.py --epochs 90
#
# --host ...        node1 first: mpirun's first process must be on the host where mpirun runs, which is where they meet.
#                   From elsewhere add --rdzv-endpoint node1:29400 behind muster. A scheduler's list serves as well
# -npernode 1       one muster on each host; it starts the workers (--nproc-per-node, here one for each GPU)
# --bind-to none    else Open MPI gives muster, and with it all workers, one core or one socket
# --nproc-per-node  and everything else that is an option of muster: MUSTER_... or ahead of the program
#
# -x MUSTER_KEY     a key of this start alone, so that nobody else can join the job; Open MPI passes the value on by itself
#
# muster takes the number of nodes, their order, the job's name and a port of its own for each mpirun from mpirun. When a
# host is lost, mpirun ends the whole job; where it is to go on, start muster by ssh or a scheduler.
if [[ $# -lt 2 ]]; then
    echo "usage: $0 HOST,HOST,... PROGRAM [ARGUMENTS]" >&2
    exit 2
fi
hosts=$1
shift
MUSTER_KEY=${MUSTER_KEY:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}
export MUSTER_KEY
# shellcheck disable=SC2086  # several words, e.g. MPIRUN="mpirun --allow-run-as-root"
exec ${MPIRUN:-mpirun} --host "$hosts" -npernode 1 --bind-to none -x MUSTER_KEY "${MUSTER:-muster}" --nproc-per-node="${WORKERS:-auto}" "$@"
