#!/bin/bash
# A job on hosts that ssh reaches without a password:  scripts/ssh/run.sh "node1 node2 node3" train.py --epochs 90
#
# Each host runs one muster in this directory; they meet on the first one. Ctrl-C or a signal to this script ends them
# all, and so does the loss of an ssh: its terminal (-tt) hangs up at the other end, and muster stops its workers then.
# When one host fails, cannot be reached or is lost, it is named; the others have PATIENCE seconds (40) to end by
# themselves and are ended then. A job that is to go on without it (--nnodes=2:3) wants more: PATIENCE=$((365 * 86400)).
# The exit code is that of the first host that failed. The shell at the other end has to be bash.
#
# Each start has a key of its own (MUSTER_KEY, else a new one), so that nobody else can join the job. It goes to each host
# through ssh's standard input, never in arguments, into a file that muster's shell there reads and removes.
set -u
read -rd '' -a hosts <<<"${1:-}" # also one a line
if [[ $# -lt 2 || ${#hosts[@]} -eq 0 ]]; then
    echo "usage: $0 'HOST HOST ...' PROGRAM [ARGUMENTS]" >&2
    exit 2
fi
shift
# Another port and another name for each start, so that two jobs may share hosts.
port=${PORT:-$((20480 + $$ % 8192))}
job=${JOB:-ssh-$$-$(date +%s)}
# The first host as an endpoint has it: without ssh's "user@", and an IPv6 address in brackets.
place=${hosts[0]##*@}
if [[ $place == *:* ]]; then place=[$place]; fi

key=${MUSTER_KEY:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}
# For the shell at the other end. The file is there until muster's shell has read it, or its start here is over.
# shellcheck disable=SC2016  # what is in quotes is for that shell
keep_key='umask 077; read -r key && file=$(mktemp) && echo "$key" >"$file" && echo "$file" || exit
    while [[ -e $file ]] && { read -rt 1; [[ $? -gt 128 ]]; }; do :; done; rm -f "$file"'

# Each host for itself, because the ssh to another one may hang.
start() { # RANK
    local pipes file keeper
    pipes=$(mktemp -d) && mkfifo "$pipes/key" "$pipes/file" && exec 3<>"$pipes/key" || exit
    # shellcheck disable=SC2086  # several words, e.g. SSH="ssh -p 2222"
    ${SSH:-ssh} "${hosts[$1]}" "$keep_key" <"$pipes/key" >"$pipes/file" 3>&- &
    keeper=$!
    trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$pipes"; exit 143' TERM
    echo "$key" >&3
    read -r file <"$pipes/file"
    rm -r "$pipes"
    if [[ ! $file ]]; then
        wait "$keeper"
        exit
    fi
    # Which host is the meeting place is said, not found out: its name may be an alias that ssh alone knows as its own.
    command=("${MUSTER:-muster}" --nnodes="${#hosts[@]}" --rdzv-backend=c10d
        --rdzv-endpoint="$place:$port" --rdzv-conf="is_host=$(($1 == 0))" --rdzv-id="$job" --node-rank="$1"
        --nproc-per-node="${WORKERS:-auto}" "${@:2}")
    file=$(printf '%q' "$file")
    words="read -r MUSTER_KEY <$file && rm -f $file && export MUSTER_KEY && cd $(printf '%q' "$PWD") && exec $(printf '%q ' "${command[@]}")"
    # shellcheck disable=SC2086  # several words, as above
    ${SSH:-ssh} -tt "${hosts[$1]}" "$words" </dev/null 3>&- &
    wait "$!"
    exit
}

pids=()
trap 'kill "${pids[@]}" 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
for rank in "${!hosts[@]}"; do
    start "$rank" "$@" &
    pids+=($!)
done

code=0
failed=
until=0
while [[ ${#pids[@]} -gt 0 ]]; do
    for rank in "${!pids[@]}"; do
        kill -0 "${pids[rank]}" 2>/dev/null && continue
        wait "${pids[rank]}"
        ended=$?
        unset "pids[rank]"
        [[ $ended -eq 0 || $code -ne 0 ]] && continue
        code=$ended
        failed=${hosts[rank]}
        until=$((SECONDS + ${PATIENCE:-40}))  # above --shutdown-timeout
        echo "$0: $failed has ended with $code" >&2
    done
    if [[ $code -ne 0 && $SECONDS -ge $until && ${#pids[@]} -gt 0 ]]; then
        echo "$0: ${#pids[@]} of ${#hosts[@]} hosts still run; they are ended, because $failed has ended with $code" >&2
        kill "${pids[@]}" 2>/dev/null
        until=$((SECONDS + 3600))
    fi
    sleep 0.2
done
trap - EXIT
exit "$code"
