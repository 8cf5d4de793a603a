#!/bin/bash
# A job on hosts that ssh reaches without a password:  scripts/ssh/run.sh "node1 node2 node3" train.py --epochs 90
#
# Each host runs one muster in this directory; they meet on the first one. Ctrl-C or a signal to this script ends them
# all, and so does the loss of an ssh: its terminal (-tt) hangs up at the other end, and muster stops its workers then.
# The exit code is that of the first host whose muster failed. The shell at the other end has to be bash.
set -u
if [[ $# -lt 2 ]]; then
    echo "usage: $0 'HOST HOST ...' PROGRAM [ARGUMENTS]" >&2
    exit 2
fi
read -ra hosts <<<"$1"
shift
# Another port and another name for each start, so that two jobs may share hosts.
port=${PORT:-$((20480 + $$ % 8192))}
job=${JOB:-ssh-$$-$(date +%s)}

pids=()
trap 'kill "${pids[@]}" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
for rank in "${!hosts[@]}"; do
    # Which host is the meeting place is said, not found out: its name may be an alias that ssh alone knows as its own.
    command=("${MUSTER:-muster}" --nnodes="${#hosts[@]}" --rdzv-backend=c10d
        --rdzv-endpoint="${hosts[0]}:$port" --rdzv-conf="is_host=$((rank == 0))" --rdzv-id="$job" --node-rank="$rank"
        --nproc-per-node="${WORKERS:-auto}" "$@")
    words="cd $(printf '%q' "$PWD") && exec $(printf '%q ' "${command[@]}")"
    # shellcheck disable=SC2086  # several words, e.g. SSH="ssh -p 2222"
    ${SSH:-ssh} -tt "${hosts[rank]}" "$words" </dev/null &
    pids+=($!)
done

code=0
for pid in "${pids[@]}"; do
    wait "$pid"
    ended=$?
    [[ $code -ne 0 ]] || code=$ended
done
pids=()
trap - EXIT
exit "$code"
