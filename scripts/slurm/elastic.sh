#!/bin/bash
# A job that goes on when nodes are lost:  sbatch scripts/slurm/elastic.sh train.py --epochs 90
#
#SBATCH --nodes=5               # four that train and one spare
#SBATCH --ntasks-per-node=1     # one muster on each node; it starts the workers
#SBATCH --cpus-per-task=64      # of that one task, so for all workers of the node
#SBATCH --gpus-per-node=8       # one worker for each; without GPUs leave the line out
#SBATCH --no-kill               # Slurm keeps the job when a node fails
#SBATCH --signal=USR1@120       # two minutes before the time limit: a notice; trainers that know it save and leave, others run on
#SBATCH --output=%x-%j.out

# The first node is where they meet: the job ends with that one (but see rendezvous/OPERATING.md: etcd, or a musterd elsewhere).
# --no-kill, --kill-on-bad-exit=0  the step goes on without the node that is lost
# --nnodes=2:4 --spares=1          four nodes train, the fifth stands by; without it three or two go on
# --shutdown-timeout=20            30 s after scancel Slurm kills what is left (KillWait); workers stop in order before that
# --max-restarts=10/1h             failures of workers that are healed by a restart, at most ten in any hour
# --checkpoint-dir                 restarts say from which step they go on; three in a row without progress end the job
# Since Slurm 22.05 srun does not take --cpus-per-task from sbatch by itself.
if [[ -n ${SLURM_CPUS_PER_TASK-} ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
exec srun --no-kill --kill-on-bad-exit=0 "${MUSTER:-muster}" --nnodes="${NODES:-2:4}" --spares="${SPARES:-1}" \
    --shutdown-timeout=20 --max-restarts=10/1h --checkpoint-dir="${CHECKPOINTS:-$PWD/checkpoints}" "$@"
