#!/bin/bash
# A job longer than its time limit, or on nodes that others may take:  sbatch scripts/slurm/requeue.sh train.py
# It saves and leaves before its time is up, puts itself into the queue again, and goes on from its checkpoint.
#
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1     # one muster on each node; it starts the workers
#SBATCH --cpus-per-task=64      # of that one task, so for all workers of the node
#SBATCH --gpus-per-node=8       # one worker for each; without GPUs leave the line out
#SBATCH --requeue               # Slurm may start the job again, under the same number
#SBATCH --open-mode=append      # and its output goes on in the same file
#SBATCH --signal=USR1@120       # two minutes before the time limit: a notice; trainers that know it save and leave, others run on
#SBATCH --output=%x-%j.out

# Since Slurm 22.05 srun does not take --cpus-per-task from sbatch by itself.
if [[ -n ${SLURM_CPUS_PER_TASK-} ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
# --shutdown-timeout: 30 s after scancel Slurm kills what is left (KillWait); muster stops its workers in order before that.
srun --kill-on-bad-exit=0 "${MUSTER:-muster}" --shutdown-timeout=20 --checkpoint-dir="${CHECKPOINTS:-$PWD/checkpoints}" "$@"
code=$?

# 75: the meeting place was lost, 76: saved and left; both are to be started again. 77: three restarts without progress,
# which another one would not heal. (A cluster with RequeueExit=75,76 in slurm.conf does it by itself.)
case $code in
    75 | 76) scontrol requeue "$SLURM_JOB_ID" ;;
esac
exit $code
