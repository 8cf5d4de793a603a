"""The command lines of the golden test, and the differences that are on purpose, each with its reason.

A case is run under the real torchrun and under muster in the same environment. What every worker sees (argv,
environment, working directory) must be equal, but for DIFFERENCES below.

In words, {dir} is the case's folder and {port} a free port of its own. A case with `nodes` starts one launcher for
each list of words, all at once.
"""

RECORD = "{dir}/record.py"


def case(name, *words, env=None, nodes=None, files=None, layout=False, console=False, fails=False, program=RECORD):
    lines = [list(node) for node in nodes] if nodes else [[*words]]
    if program is not None:
        lines = [line + [program] if RECORD not in line and program not in line else line for line in lines]
    return {"name": name, "nodes": lines, "env": env or {}, "files": files or {}, "layout": layout,
            "console": console, "fails": fails}


C10D = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:{port}", "--rdzv-conf=last_call_timeout=1"]
STATIC = ["--master-addr=127.0.0.1", "--master-port={port}"]
MAP_WORDS = ["a b", "", "ü", "$local_rank", "${{local_rank}}", "$$HOME", "${{other}}", "x$local_rank-y", "--tee=3", "--"]

CASES = [
    case("nothing given"),
    case("two workers", "--nproc-per-node=2"),
    case("underscores", "--nproc_per_node", "2", "--max_restarts", "1"),
    case("abbreviations", "--nproc-=2", "--max-r", "2"),
    case("standalone", "--standalone", "--nproc-per-node=2"),
    case("standalone overrides", "--standalone", "--rdzv-backend=static", "--rdzv-endpoint=other:1", "--rdzv-id=x"),
    case("static by its port", "--master-port={port}"),
    case("static by address and port", *STATIC, "--nproc-per-node=2"),
    case("static by endpoint", "--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=j7"),
    case("static by localhost", "--master-addr=localhost", "--master-port={port}"),
    case("static over IPv6", "--master-addr=[::1]", "--master-port={port}"),
    case("c10d on one node", *C10D, "--rdzv-id=j8", "--nproc-per-node=2"),
    case("c10d elastic range", *C10D, "--nnodes=1:1", "--rdzv-id=j9"),
    case("last of two", "--nproc-per-node=3", "--nproc-per-node=1", "--role=a", "--role=b"),
    case("role", "--role=trainer", "--nproc-per-node=2"),
    case("budget", "--max-restarts=5"),
    case("one restart", *STATIC, "--max-restarts=2", "--nproc-per-node=2", RECORD, "--fail-once"),
    case("one restart with c10d", *C10D, "--max-restarts=1", RECORD, "--fail-once"),
    case("a failure", "--max-restarts=0", RECORD, "--fail", fails=True),
    case("words of the program", "--nproc-per-node=2", RECORD, *MAP_WORDS),
    case("words that are ours", RECORD, "--nproc-per-node=4", "-t3", "-h", "--standalone"),
    case("two dashes", "--", RECORD, "--x"),
    case("module", "-m", "pkg.entry", "-a", files={"pkg/__init__.py": "", "pkg/entry.py": "import record\n"},
         program=None, env={"PYTHONPATH": "{dir}"}),
    case("module in full", "--module", "pkg.entry", "${{local_rank}}", program=None, env={"PYTHONPATH": "{dir}"},
         files={"pkg/__init__.py": "", "pkg/entry.py": "import record\n"}),
    case("a program", "--no-python", "{dir}/record.sh", "$local_rank", "b c", program=None,
         files={"record.sh": '#!/bin/sh\nexec "$PYTHON_EXEC" "$RECORD" "$0" "$@"\n'}, env={"RECORD": RECORD}),
    case("a program in PATH", "--no_python", "sh", "-c", 'exec "$PYTHON_EXEC" "$RECORD" "$0"', program=None,
         env={"RECORD": RECORD}),
    case("run path", "--run-path", RECORD, "-x", "1"),
    case("a directory", "{dir}/app", program=None, files={"app/__main__.py": "import record\n"},
         env={"PYTHONPATH": "{dir}"}),
    case("a name with blanks", "{dir}/with blanks/record it.py", "a", program=None,
         files={"with blanks/record it.py": "import record\n"}, env={"PYTHONPATH": "{dir}"}),
    case("a relative script", "--nproc-per-node=2", "record.py", "-q", program=None),
    case("PET gives defaults", env={"PET_NPROC_PER_NODE": "2", "PET_MAX_RESTARTS": "4", "PET_ROLE": "petrole"}),
    case("the command line beats PET", "--nproc-per-node=1", env={"PET_NPROC_PER_NODE": "2"}),
    case("PET flags", env={"PET_STANDALONE": "1", "PET_MODULE": "0"}),
    case("PET module", "pkg.entry", program=None, env={"PET_MODULE": "1", "PYTHONPATH": "{dir}"},
         files={"pkg/__init__.py": "", "pkg/entry.py": "import record\n"}),
    case("PET static", env={"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "{port}", "PET_NNODES": "1",
                            "PET_NODE_RANK": "0"}),
    case("threads already chosen", "--nproc-per-node=2", env={"OMP_NUM_THREADS": "7"}),
    case("async error handling chosen", env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    case("devices passed on", "--nproc-per-node=2", env={"CUDA_VISIBLE_DEVICES": "3,1"}),
    case("virtual local ranks", "--virtual-local-rank", "--nproc-per-node=2", env={"CUDA_VISIBLE_DEVICES": "3,1"}),
    case("variables of an outer launcher", "--nproc-per-node=2",
         env={"RANK": "9", "LOCAL_RANK": "9", "WORLD_SIZE": "99", "MASTER_ADDR": "nowhere", "MASTER_PORT": "1",
              "GROUP_RANK": "4", "TORCHELASTIC_RUN_ID": "outer", "TORCHELASTIC_USE_AGENT_STORE": "False"}),
    case("a store of the worker's own", *C10D, env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
    case("signals", "--signals-to-handle=SIGTERM,SIGUSR1"),
    case("time-outs", "--shutdown-timeout=5", "--monitor-interval=0.5", "--start-method=fork"),
    case("no files", "--log-dir=/dev/null", "--nproc-per-node=2"),
    case("no files although asked", "--log-dir=/dev/null", "-t3", "--nproc-per-node=2"),
    case("files for all", "--log-dir={dir}/logs", "-r3", "--nproc-per-node=2", "--rdzv-id=lay", *C10D, layout=True),
    case("files without redirection", "--log-dir={dir}/logs", *STATIC, "--rdzv-id=lay", layout=True, console=True),
    case("files for some", "--log-dir={dir}/logs", "-r", "0:1,1:2", *STATIC, "--nproc-per-node=3", layout=True,
         console=True),
    case("tee", "--log-dir={dir}/logs", "-t", "3", *STATIC, "--nproc-per-node=2", layout=True, console=True),
    case("tee of one stream", "--log-dir={dir}/logs", "-t1", "-r2", *STATIC, layout=True, console=True),
    case("tee with a template", "--log-dir={dir}/logs", "-t3", *STATIC, "--role=r", layout=True, console=True,
         env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${{role_name}}|${{rank}}|${{local_rank}}> "}),
    case("one rank on the console", "--log-dir={dir}/logs", "-t3", "--local-ranks-filter=1", "--nproc-per-node=2",
         *STATIC, layout=True, console=True),
    case("one rank on the console, no files", "--local-ranks-filter=0", "--nproc-per-node=2", *STATIC, console=True),
    case("filtered files", "--log-dir={dir}/logs", "-t3", "--duplicate-stdout-filters=rank 1,zzz",
         "--duplicate-stderr-filters=rank 0", "--nproc-per-node=2", *STATIC, layout=True),
    case("attempts", "--log-dir={dir}/logs", "-r3", *STATIC, "--max-restarts=1", RECORD, "--fail-once", layout=True),
    case("two static nodes", nodes=[["--nnodes=2", "--node-rank=0", *STATIC, "--nproc-per-node=2"],
                                    ["--nnodes=2", "--node-rank=1", *STATIC, "--nproc-per-node=2"]]),
    case("two static nodes of two sizes and roles",
         nodes=[["--nnodes=2", "--node-rank=0", *STATIC, "--nproc-per-node=1", "--role=ps"],
                ["--nnodes=2", "--node-rank=1", *STATIC, "--nproc-per-node=3", "--role=trainer"]]),
    case("two c10d nodes", nodes=[["--nnodes=2", *C10D, "--rdzv-id=pair"], ["--nnodes=2", *C10D, "--rdzv-id=pair"]]),
    case("two c10d nodes of two workers",
         nodes=[["--nnodes=2:2", *C10D, "--rdzv-id=pair", "--nproc-per-node=2"]] * 2),
]

# --warm-workers has no effect on these: a program other than Python, and a script that torchrun reads in another way.
NEVER_WARM = {"a program", "a program in PATH", "run path", "a directory"}

# Variables of the workers that differ on purpose. The rule is a function's name in golden_test.py.
DIFFERENCES = {
    "MASTER_ADDR": ("same_host", "c10d: torchrun writes the host's full name, which may not resolve elsewhere; muster "
                                 "writes the address by which the node is reached"),
    "MASTER_PORT": ("both_ports", "c10d: the port of a store that the kernel chose"),
    "TORCHELASTIC_RUN_ID": ("equal_or_both_random", "standalone: a random job id"),
    "TORCHELASTIC_ERROR_FILE": ("same_layout", "random parts of the directory's name"),
    "MUSTER_ROUND": ("only_ours", "the round's number, equal on all nodes"),
    "MUSTER_AGENT_SOCKET": ("only_ours", "the agent-worker channel"),
    "MUSTER_COLLECTIVE_THREADS": ("only_ours", "threads for large collectives"),
    "MUSTER_WARM_WORKERS": ("only_ours", "golden_test.py --warm"),
    "MUSTER_WARM_JOIN": ("only_ours", "golden_test.py --warm"),
    "MUSTER_WARM_IMPORTS": ("only_ours", "golden_test.py --warm"),
    "MUSTER_AGENT_TOKEN": ("only_ours", "what a worker shows on the agent-worker channel"),
}

# Command lines that must be refused: by torchrun with exit code 2 (a line of argparse) or 1 (a Python traceback); by
# muster always with 2 and one line that holds the given text.
REFUSED = [
    (["--no-such-option", "{dir}/record.py"], "--no-such-option"),
    (["--nproc-per-nodes=2", "{dir}/record.py"], "--nproc-per-node"),
    (["--rdzv=x", "{dir}/record.py"], "ambiguous"),
    (["--max-restarts=many", "{dir}/record.py"], "--max-restarts"),
    (["--max-restarts=-1", "{dir}/record.py"], "--max-restarts"),
    (["--max-restarts"], "--max-restarts"),
    (["--nproc-per-node", "--standalone", "{dir}/record.py"], "--nproc-per-node"),
    (["--standalone=1", "{dir}/record.py"], "--standalone"),
    (["--start-method=thread", "{dir}/record.py"], "--start-method"),
    (["--numa-binding=core", "{dir}/record.py"], "--numa-binding"),
    (["--monitor-interval=soon", "{dir}/record.py"], "--monitor-interval"),
    (["--node-rank=x", "{dir}/record.py"], "--node-rank"),
    (["--master-port=x", "{dir}/record.py"], "--master-port"),
    (["--shutdown-timeout=1.5", "{dir}/record.py"], "--shutdown-timeout"),
    (["--nproc-per-node=2"], "program is missing"),
    ([], "program is missing"),
    (["--nnodes=1:2:3", "{dir}/record.py"], "--nnodes"),
    (["--nnodes=0", "{dir}/record.py"], "--nnodes"),
    (["--nnodes=x", "{dir}/record.py"], "--nnodes"),
    (["--nproc-per-node=few", "{dir}/record.py"], "--nproc-per-node"),
    (["--nproc-per-node=0", "{dir}/record.py"], "--nproc-per-node"),
    (["--rdzv-backend=zeus", "{dir}/record.py"], "--rdzv-backend"),
    (["--rdzv-conf=a", "{dir}/record.py"], "--rdzv-conf"),
    (["--rdzv-endpoint=a:b:c:99999", "--rdzv-backend=c10d", "{dir}/record.py"], "--rdzv-endpoint"),
    (["-r", "7", "{dir}/record.py"], "--redirects"),
    (["-t", "0:5", "{dir}/record.py"], "--tee"),
    (["--local-ranks-filter=a", "{dir}/record.py"], "--local-ranks-filter"),
    (["-m", "--no-python", "{dir}/record.py"], "--no-python"),
    (["--logs-specs=mine", "{dir}/record.py"], "--logs-specs"),
    (["--shutdown-timeout=-1", "{dir}/record.py"], "--shutdown-timeout"),
]

# Variables that make a line refused, as above.
REFUSED_ENVIRONMENT = [
    ({"PET_MAX_RESTARTS": "x"}, "PET_MAX_RESTARTS"),
    ({"PET_STANDALONE": "yes"}, "PET_STANDALONE"),
    ({"PET_NNODES": "a:b"}, "PET_NNODES"),
    ({"PET_MASTER_PORT": ""}, "PET_MASTER_PORT"),
    ({"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "soon"}, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
]
