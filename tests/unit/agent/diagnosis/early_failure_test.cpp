#include "agent/diagnosis/early_failure.h"

#include "tests/support/catch.h"

using namespace muster;
using namespace muster::agent;

namespace {

struct EarlyRow {
    const char* what;
    WorkerEnd end;
    const char* message;
    std::string stderr_tail;
    bool repeats;
};

}  // namespace

TEST_CASE("a mistake that the next start repeats is told from what a restart may heal") {
    const std::string traceback = "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\n";
    const std::vector<EarlyRow> rows = {
        {"a module that is not installed", Exited{1}, "", traceback + "ModuleNotFoundError: No module named 'apex'\n",
         true},
        {"a name that the module lacks", Exited{1}, "",
         traceback + "ImportError: cannot import name 'x' from 'y' (y.py)\n", true},
        {"with torch's prefix", Exited{1}, "",
         "[rank3]: Traceback (most recent call last):\n[rank3]: ModuleNotFoundError: No module named 'apex'\n", true},
        {"a script that does not parse", Exited{1}, "",
         "  File \"train.py\", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n", true},
        {"lines after the traceback", Exited{1}, "",
         traceback + "ImportError: libcudnn.so.9: cannot open shared object file\nwandb: run finished\n", true},
        {"from the error file", Exited{1}, "ModuleNotFoundError: No module named 'apex'", "", true},
        {"the error file is asked first", Exited{1}, "ValueError: bad batch", "ImportError: no\n", false},
        {"an import that was caught", Exited{1}, "",
         traceback +
             "ImportError: no flash_attn\n\nDuring handling of the above exception, another exception "
             "occurred:\n\n" +
             traceback + "RuntimeError: CUDA out of memory\n",
         false},
        {"an exception of the work", Exited{1}, "", traceback + "ValueError: bad batch\n", false},
        {"a file that may come", Exited{1}, "",
         traceback + "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'\n", false},
        {"python -m of nothing", Exited{1}, "", "/usr/bin/python3: No module named train\n", true},
        {"python without the script", Exited{2}, "",
         "python3: can't open file '/x/train.py': [Errno 2] No such file or directory\n", true},
        {"an option that argparse does not know", Exited{2}, "",
         "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --lrr 3\n", true},
        {"exit 2 for a reason of its own", Exited{2}, "", "diverged\n", false},
        {"usage, but another code", Exited{3}, "", "usage: train.py\n", false},
        {"a library that the loader does not find", Exited{127}, "",
         "./train: error while loading shared libraries: libnccl.so.2: cannot open shared object file\n", true},
        {"a shell's 127", Exited{127}, "", "sh: 1: frob: not found\n", false},
        {"no such program", NotStarted{2, "execvpe"}, "", "", true},
        {"no memory for a process", NotStarted{12, "fork"}, "", "", false},
        {"a crash", Signaled{11, false}, "", traceback + "ImportError: no\n", false},
        {"no word", Exited{1}, "", "", false},
    };
    for (const auto& row : rows) {
        INFO(row.what);
        CHECK(repeats_itself(row.end, row.message, row.stderr_tail) == row.repeats);
    }
}

TEST_CASE("a checkpoint for which the disk has no room is repeated at any step, and nothing else that is about it") {
    const std::string unsaved = "MusterError: the newest checkpoint was not saved: rank 1: write /c/x: ";
    const auto is_full = [](const std::string& tail, WorkerEnd end = Exited{1}, const char* message = "") {
        return is_full_of_checkpoints(end, message, tail);
    };
    CHECK(is_full(unsaved + "No space left on device\n"));
    CHECK(is_full(unsaved + "Disk quota exceeded\n"));
    CHECK(is_full(unsaved + "File too large: this process may write files of at most 4096 bytes; raise ulimit -f\n"));
    CHECK(is_full("", Exited{1}, (unsaved + "No space left on device").c_str()));
    CHECK_FALSE(is_full(unsaved + "Input/output error\nNo space left on device\n"));
    CHECK_FALSE(is_full("OSError: [Errno 28] No space left on device: '/tmp/x'\n"));
    CHECK_FALSE(is_full("checkpoint of step 30 was not saved: rank 0: write /c/x: No space left on device\n"));
    CHECK_FALSE(is_full(unsaved + "No space left on device\n", Signaled{9, false}));
    CHECK_FALSE(is_full(unsaved + "No space left on device\nTraceback (most recent call last):\nValueError: x\n"));
}
