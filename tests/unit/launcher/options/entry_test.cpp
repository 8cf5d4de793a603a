// What is run for which file, and what is refused before anything else happens.
#include "launcher/options/entry.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"
#include "tests/support/holds.h"
#include "tests/support/scratch_folder.h"

using namespace muster::launcher;
using muster::test::holds;
using Argv = std::vector<std::string>;

namespace {

class Files {
  public:
    Files() {
        make("bin/python3", "#!/bin/sh\n", 0755);
        environment["PATH"] = folder / "bin";
    }

    std::string make(const std::string& name, const std::string& content, mode_t mode = 0644) {
        const auto path = folder / name;
        std::filesystem::create_directories(std::filesystem::path(path).parent_path());
        std::ofstream(path) << content;
        ::chmod(path.c_str(), mode);
        return path;
    }
    [[nodiscard]] std::variant<Entry, NotRunnable> resolve(const std::string& script,
                                                           EntryKind kind = EntryKind::by_content,
                                                           bool local_rank_argument = false) const {
        LaunchConfig config;
        config.entry = kind;
        config.local_rank_argument = local_rank_argument;
        config.script = script;
        config.arguments = {"-a", "b c"};
        return resolve_entry(config, environment);
    }
    [[nodiscard]] Argv argv(const std::string& script, EntryKind kind = EntryKind::by_content) const {
        const auto entry = resolve(script, kind);
        if (const auto* wrong = std::get_if<NotRunnable>(&entry)) FAIL(wrong->why);
        return std::get<Entry>(entry).argv;
    }
    [[nodiscard]] NotRunnable refusal(const std::string& script, EntryKind kind = EntryKind::by_content) const {
        const auto entry = resolve(script, kind);
        REQUIRE(std::holds_alternative<NotRunnable>(entry));
        return std::get<NotRunnable>(entry);
    }
    [[nodiscard]] std::string python() const { return folder / "bin/python3"; }

    muster::test::ScratchFolder folder;
    Environment environment;
};

}  // namespace

TEST_CASE("a Python script runs under the interpreter, unbuffered") {
    Files files;
    for (const auto& script :
         {files.make("train.py", "print(1)\n"), files.make("no_suffix", "print(1)\n"), files.make("empty", ""),
          files.make("with_line", "#!/usr/bin/env python3\n", 0755), files.make("odd.py", "#!/bin/sh\n", 0755),
          files.make("v", "#!/opt/x/bin/python3.11 -E\n", 0755), files.make("archive", "PK\x03\x04zip")})
        CHECK(files.argv(script) == Argv{files.python(), "-u", script, "-a", "b c"});
}

TEST_CASE("a directory or a module runs under the interpreter") {
    Files files;
    files.make("app/__main__.py", "");
    files.make("data/x", "");
    CHECK(files.argv(files.folder / "app") == Argv{files.python(), "-u", files.folder / "app", "-a", "b c"});
    CHECK(files.argv("pkg.train", EntryKind::module) == Argv{files.python(), "-u", "-m", "pkg.train", "-a", "b c"});
    CHECK(files.refusal(files.folder / "data").exit_code == 126);
    CHECK(holds(files.refusal(files.folder / "data").why, "__main__.py"));
}

TEST_CASE("an ELF file and a script with another shebang run without Python") {
    Files files;
    const auto binary = files.make("tool",
                                   "\x7f"
                                   "ELF\x02",
                                   0755);
    const auto script = files.make("run.sh", "#!/bin/sh -e\n", 0755);
    const auto through_env = files.make("run2", "#!/usr/bin/env -S X=1 bash\n", 0755);
    CHECK(files.argv(binary) == Argv{binary, "-a", "b c"});
    CHECK(files.argv(script) == Argv{script, "-a", "b c"});
    CHECK(files.argv(through_env) == Argv{through_env, "-a", "b c"});
    const auto cwd = std::filesystem::current_path();
    std::filesystem::current_path(files.folder.string());
    CHECK(files.argv("tool")[0] == "./tool");
    std::filesystem::current_path(cwd);
}

TEST_CASE("--no-python looks in PATH, --run-path uses runpy") {
    Files files;
    const auto tool = files.make("bin/tool", "#!/bin/sh\n", 0755);
    CHECK(files.argv("tool", EntryKind::program) == Argv{"tool", "-a", "b c"});
    const auto script = files.make("s.py", "");
    const auto argv = files.argv(script, EntryKind::run_path);
    REQUIRE(argv.size() == 7);
    CHECK(argv[2] == "-c");
    CHECK(holds(argv[3], "runpy.run_path"));
    CHECK(argv[4] == script);
}

TEST_CASE("what is missing or not executable is refused with the shell's code and the reason") {
    Files files;
    CHECK(files.refusal("missing.py").exit_code == 127);
    CHECK(holds(files.refusal("missing.py").why, "'missing.py': No such file"));
    CHECK(files.refusal("/nowhere/tool", EntryKind::program).exit_code == 127);
    CHECK(files.refusal("tool", EntryKind::program).exit_code == 127);
    files.make("bin/tool", "x", 0644);
    CHECK(files.refusal("tool", EntryKind::program).exit_code == 126);
    CHECK(files
              .refusal(files.make("a.out",
                                  "\x7f"
                                  "ELF",
                                  0644))
              .exit_code == 126);
    CHECK(holds(files.refusal(files.folder / "a.out").why, "not executable"));
    CHECK(files.refusal(files.folder.string(), EntryKind::program).exit_code == 126);
    const auto orphan = files.refusal(files.make("orphan", "#!/nowhere/interpreter\n", 0755));
    CHECK(orphan.exit_code == 127);
    CHECK(holds(orphan.why, "/nowhere/interpreter"));
    files.make("bin/train", "#!/bin/sh\n", 0755);
    CHECK(holds(files.refusal("train").why, "--no-python"));
}

TEST_CASE("a first line that leads nowhere is found with --no-python too, through PATH or not") {
    Files files;
    files.make("bin/orphan", "#!/nowhere/interpreter\n", 0755);
    files.make("bin/relative", "#!python3\n", 0755);
    files.make("bin/dos", "#!/bin/sh\r\necho\r\n", 0755);
    files.make("bin/by_env", "#!/usr/bin/env no-such-shell\n", 0755);
    files.make("bin/plain", "echo\n", 0755);
    files.make("bin/found_by_env", "#!/usr/bin/env\tpython3\n", 0755);
    files.make("bin/own_path", "#!/usr/bin/env -S PATH=/x no-such-shell\n", 0755);
    for (const auto& prefix : {std::string{}, files.folder / "bin/"}) {
        const auto refusal = [&](const char* name) { return files.refusal(prefix + name, EntryKind::program); };
        CHECK(refusal("orphan").exit_code == 127);
        CHECK(
            holds(refusal("orphan").why, "'/nowhere/interpreter': No such file or directory, named in its first line"));
        CHECK(refusal("relative").exit_code == 127);
        CHECK(refusal("dos").exit_code == 127);
        CHECK(holds(refusal("dos").why, "Unix line ends"));
        CHECK(refusal("by_env").exit_code == 127);
        CHECK(holds(refusal("by_env").why, "'no-such-shell' is not in any directory of PATH"));
        CHECK(files.argv(prefix + "found_by_env", EntryKind::program).size() == 3);
        CHECK(files.argv(prefix + "own_path", EntryKind::program).size() == 3);
        if (std::filesystem::exists("/proc/sys/fs/binfmt_misc/register")) continue;  // others may run it
        CHECK(refusal("plain").exit_code == 126);
        CHECK(holds(refusal("plain").why, "'#!' line"));
    }
}

TEST_CASE("the interpreter is PYTHON_EXEC, else the active environment's, else the first in PATH") {
    Files files;
    const auto venv = files.make("venv/bin/python3", "", 0755);
    const auto conda = files.make("conda/bin/python3", "", 0755);
    const auto own = files.make("own/python", "", 0755);
    const auto script = files.make("t.py", "");
    CHECK(files.argv(script)[0] == files.python());
    files.environment["CONDA_PREFIX"] = files.folder / "conda";
    CHECK(files.argv(script)[0] == conda);
    files.environment["VIRTUAL_ENV"] = files.folder / "venv";
    CHECK(files.argv(script)[0] == venv);
    files.environment["PYTHON_EXEC"] = own;
    CHECK(files.argv(script)[0] == own);
    files.environment["PYTHON_EXEC"] = "/nowhere/python";
    CHECK(files.refusal(script).exit_code == 127);
    CHECK(holds(files.refusal(script).why, "PYTHON_EXEC"));
    files.environment = {{"PATH", files.folder / "venv"}};
    CHECK(files.refusal(script).exit_code == 127);
    CHECK(holds(files.refusal(script).why, "set PYTHON_EXEC"));
}

TEST_CASE("with --local-rank-argument a shell puts each worker's local rank in front of the user's arguments") {
    Files files;
    const auto script = files.make("it's.py", "");
    const auto entry = files.resolve(script, EntryKind::by_content, true);
    const auto& argv = std::get<Entry>(entry).argv;
    const auto quoted = files.folder / "it'\\''s.py";
    CHECK(argv == Argv{"/bin/sh", "-c",
                       "exec '" + files.python() + "' '-u' '" + quoted + "' \"--local-rank=$LOCAL_RANK\" \"$@\"", "sh",
                       "-a", "b c"});
    const auto module = files.resolve("pkg.train", EntryKind::module, true);
    CHECK(holds(std::get<Entry>(module).argv[2], "'-u' '-m' 'pkg.train' \"--local-rank=$LOCAL_RANK\""));
}
