#!/bin/bash
# A job of a fixed number of nodes:  sbatch scripts/slurm/fixed.sh train.py --epochs 90
#
# The lines below are requests to Slurm; each can be given to sbatch instead.
#SBATCH --nodes=2               # the job waits for both, and ends when one is lost (see elastic.sh)
#SBATCH --ntasks-per-node=1     # one muster on each node; it starts the workers
#SBATCH --gpus-per-node=8       # muster starts one worker for each; without GPUs leave the line out
#SBATCH --cpus-per-task=64      # of that one task, so for all workers of the node
#SBATCH --signal=USR1@120       # two minutes before the time limit: a notice; trainers that know it save and leave, others run on
#SBATCH --output=%x-%j.out      # one file for all; muster --log-dir keeps each worker's lines apart

# What muster finds out by itself: the nodes, where they meet (the first one), the job's name, and the workers on each node.
# 30 s after scancel Slurm kills what is left (KillWait); muster stops its workers in order before that.
# Since Slurm 22.05 srun does not take --cpus-per-task from sbatch by itself.
if [[ -n ${SLURM_CPUS_PER_TASK-} ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
exec srun --kill-on-bad-exit=0 "${MUSTER:-muster}" --shutdown-timeout=20 "$@"
