#!/usr/bin/env python3
"""Shows that every check of scripts/tidy can fail: each plants one bad file in an empty tree, and a good twin beside it."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TIDY = Path(__file__).parents[2] / "scripts" / "tidy"


def findings(check, files, environment=None):
    """What `tidy CHECK` says about a tree of these files: a list of "path:line" in order."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            target = Path(folder, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        run = subprocess.run([sys.executable, str(TIDY), "--root", folder, check], text=True, capture_output=True,
                             timeout=300, env=environment)
    found = [":".join(line.split(":")[:2]) for line in run.stdout.splitlines() if line.endswith(f"[{check}]")]
    assert run.returncode == (1 if found else 0), run.stdout + run.stderr
    return found


class Tidy(unittest.TestCase):
    def expect(self, check, bad, good):
        """`bad` maps a path to (text, lines that are wrong); `good` maps paths to texts without any finding."""
        for path, (text, lines) in bad.items():
            self.assertEqual(findings(check, {path: text}), [f"{path}:{line}" for line in lines], path)
        self.assertEqual(findings(check, good), [])

    def test_includes_go_down_only(self):
        self.expect("includes", {
            "rendezvous/base/a.h": ('#include "rendezvous/wire/native/messages.h"\n', [1]),
            "rendezvous/wire/native/a.h": ('#pragma once\n#include "rendezvous/rounds/server.h"\n', [2]),
            "rendezvous/rounds/a.h": ('#include "rendezvous/servers/daemon.h"\n', [1]),
            "rendezvous/client/a.h": ('#include "rendezvous/rounds/server.h"\n', [1]),
            "rendezvous/net/a.cpp": ('#include "agent/driver/agent.h"\n', [1]),
            "agent/supervision/a.h": ('#include "rendezvous/client/client.h"\n', [1]),
            "agent/driver/agent.cpp": ('#include "launcher/node/wiring.h"\n', [1]),
            "worker_runtime/torch/a.cpp": ('#include "worker_runtime/context/met_group.h"\n#include "rendezvous/base/error.h"\n', [1, 2]),
            "worker_runtime/a.cpp": ('#include "agent/driver/agent.h"\n#include "launcher/options/options.h"\n', [1, 2]),
            "launcher/a.cpp": ('#include "tests/support/catch.h"\n', [1]),
            "launcher/b.cpp": ("#include <launcher/options/options.h>\n", [1]),
        }, {
            "rendezvous/wire/native/a.h": '#include "rendezvous/base/ids.h"\n#include "rendezvous/wire/native/b.h"\n',
            "agent/supervision/supervisor.h": '#include "agent/supervision/process_host.h"\n',
            "launcher/node/wiring.cpp": '#include "rendezvous/servers/daemon.h"\n#include "agent/driver/agent.h"\n',
            "tests/unit/a_test.cpp": '#include "rendezvous/rounds/server.h"\n#include "tests/support/catch.h"\n',
        })

    def test_folders_include_one_another_in_one_direction(self):
        low = {"agent/driver/low.h": "", "agent/process/low.h": ""}
        there = {"agent/driver/a.cpp": '#include "agent/process/low.h"\n', **low}
        self.assertEqual(findings("circles", there), [])
        back = {"agent/process/a.cpp": '\n#include "agent/driver/low.h"\n'}
        self.assertEqual(findings("circles", {**there, **back}), ["agent/driver/a.cpp:1"])

    def test_third_party_headers_stay_in_their_folders(self):
        self.expect("third_party", {
            "rendezvous/rounds/a.cpp": ("#include <boost/asio.hpp>\n", [1]),
            "agent/supervision/a.cpp": ("#include <boost/asio/post.hpp>\n", [1]),
            "rendezvous/net/a.cpp": ("#include <spdlog/spdlog.h>\n#include <boost/beast/http.hpp>\n", [1, 2]),
            "rendezvous/wire/native/a.cpp": ("#include <nlohmann/json.hpp>\n", [1]),
            "launcher/node/wiring.cpp": ("#include <boost/program_options.hpp>\n", [1]),
            "launcher/host/gpu_count.cpp": ("#include <nvml.h>\n", [1]),
            "worker_runtime/context/a.cpp": ("#include <torch/library.h>\n#include <ATen/ATen.h>\n", [1, 2]),
            "agent/process/a.cpp": ("#include <sqlite3.h>\n#include <cuda_runtime.h>\n", [1, 2]),
        }, {
            "rendezvous/net/session.cpp": "#include <boost/asio.hpp>\n",
            "rendezvous/base/log.cpp": "#include <spdlog/spdlog.h>\n",
            "launcher/options/options.cpp": "#include <boost/program_options.hpp>\n",
            "launcher/report.cpp": "#include <nlohmann/json.hpp>\n",
            "worker_runtime/torch/backend.cpp": "#include <torch/library.h>\n",
        })

    def test_cores_have_no_outside(self):
        bad = ["auto now = std::chrono::steady_clock::now();", "std::mt19937 engine;", "std::this_thread::sleep_for(1s);",
               'const char* home = std::getenv("HOME");', "std::unordered_map<int, int> table;", "#include <unistd.h>",
               "#include <mutex>", 'log(LogLevel::info, "joined");', 'std::printf("joined");']
        for line in bad:
            for path in ("rendezvous/rounds/a.cpp", "agent/supervision/a.h", "rendezvous/client/core/client_core.cpp"):
                self.assertEqual(findings("cores", {path: "int a;\n" + line + "\n"}), [f"{path}:2"], line)
            self.assertEqual(findings("cores", {"rendezvous/net/a.cpp": line + "\n"}), [], line)
        self.assertEqual(findings("cores", {
            "agent/supervision/good.h": "// reads no getenv(), and never sleep(1)\n#include <map>\nInstant next_sleep(Instant);\n"
                                 'auto text = "steady_clock::now";\n',
            "rendezvous/rounds/allowed.h": "std::unordered_map<A, B> m;  // tidy: allow unordered - never iterated\n",
        }), [])
        self.assertEqual(findings("cores", {"rendezvous/rounds/a.h": "std::unordered_map<A, B> m;  // tidy: allow unordered\n"}),
                         ["rendezvous/rounds/a.h:1"], "an exception needs its reason")

    def test_long_files_are_found(self):
        self.expect("file_length", {"agent/driver/a.cpp": ("int a;\n" * 501, [501]), "scripts/a": ("true\n" * 600, [501])},
                    {"agent/driver/a.cpp": "int a;\n" * 500, "rendezvous/PROTOCOL.md": "word\n" * 900,
                     "worker_runtime/examples/data/digits.csv": "1,2\n" * 900})

    def test_long_functions_are_found(self):
        def body(count):
            return "    if (a) { b(); }\n" * count
        self.expect("function_length", {
            "agent/driver/a.cpp": (f"namespace x {{\n\nvoid f(int a) {{\n{body(69)}}}\n\n}}\n", [3]),
            "agent/b.cpp": (f"struct S {{\n    S(int a) : a_(a) {{\n{body(70)}    }}\n    int a_;\n}};\n", [2]),
            "tests/a_test.cpp": (f'TEST_CASE("a }} brace {{") {{\n{body(70)}}}\n', [1]),
            "scripts/a.py": ("import os\ndef f():\n" + "    os.getpid()\n" * 70, [2]),
        }, {
            "agent/driver/a.cpp": f"namespace x {{\nvoid f(int a) {{\n{body(68)}}}\nvoid g() {{\n{body(60)}}}\n}}\n",
            "agent/b.h": "enum class E {\n" + "    a,\n" * 90 + "};\nconst char* t[] = {\n" + "    x(1),\n" * 90 + "};\n",
            "agent/c.h": f"#define M(x) do {{ \\\n    (x); \\\n}} while (0)\nstruct S {{\n{'    int a();' * 1}\n" + "\n" * 90 + "};\n",
        })

    def test_a_type_that_two_files_define_is_found(self):
        def space(name, text):
            return f"namespace {name} {{\n{text}\n}}  // namespace {name}\n"

        first = {"agent/a.h": space("muster::agent", "struct Call {\n    int a;\n};"),
                 "agent/d.h": space("muster::agent", "class Taken;\nclass Outer {\n    struct Call {};\n};")}
        for again in ("struct Call {};", "class Call final : public Base {\n};", "enum class Call { a };",
                      "template <class T>\nstruct Call {\n};"):
            line = 3 if again.startswith("template") else 2
            self.assertEqual(findings("one_type", first | {"agent/b.cpp": space("muster::agent", again)}),
                             [f"agent/b.cpp:{line}"], again)
        for good in (space("muster::agent", "\n" + space("", "struct Call {};")), space("muster::launcher", "struct Call {};"),
                     space("muster::agent", "struct Call;\nclass Outer::Call {\n};\nvoid f(struct Call a) {}\n"
                                            "template <>\nstruct Call<int> {\n};\nCall g() {\n}\n// struct Call {\n")):
            self.assertEqual(findings("one_type", first | {"agent/b.cpp": good}), [], good)

    def test_vague_names_are_found(self):
        self.expect("names", {"agent/utils.h": ("", [1]), "tests/helpers/a.h": ("", [1]), "rendezvous/common.cpp": ("", [1])},
                    {"agent/uncommon.h": "", "agent/process/helper_process.h": ""})

    def test_sources_without_a_target_are_found(self):
        listed = "muster_test(a LABELS unit SOURCES a_test.cpp)\n"
        self.assertEqual(findings("test_sources", {"tests/unit/CMakeLists.txt": listed, "tests/unit/a_test.cpp": "",
                                                   "tests/unit/b_test.cpp": ""}), ["tests/unit/b_test.cpp:1"])
        self.assertEqual(findings("test_sources", {"tests/unit/x/a_test.cpp": ""}), ["tests/unit/x/a_test.cpp:1"])
        self.assertEqual(findings("test_sources", {"tests/unit/CMakeLists.txt": listed, "tests/unit/a_test.cpp": "",
                                                   "tests/CMakeLists.txt": "add_library(s support/s.cpp)",
                                                   "tests/support/s.cpp": ""}), [])

    def test_undocumented_messages_are_found(self):
        header = {"rendezvous/wire/native/messages.h": "using Message = std::variant<Hello,\n    Join>;\n"}
        self.assertEqual(len(findings("messages", header)), 2)
        self.assertEqual(len(findings("messages", header | {"rendezvous/PROTOCOL.md": "Hello is first."})), 1)
        self.assertEqual(findings("messages", header | {"rendezvous/PROTOCOL.md": "Hello, then `Join`."}), [])

    def test_conflicts_of_a_merge_are_found(self):
        self.expect("conflicts", {"a.md": ("a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> other\n", [2, 6])},
                    {"b.md": "Title\n=======\n\n    $ cat <<<<<<< word\n"})

    def test_paths_of_one_machine_are_found(self):
        home = "/".join(("", "home", "somebody", "muster"))
        self.expect("machine_paths", {"scripts/a": (f"cd {home}\n", [1]), "README.md": (f"\nIn {home}.\n", [2])},
                    {"README.md": "See agent/work/ and https://example.org/home/page, ${HOME}/x.\n"})

    @unittest.skipUnless(shutil.which("clang-format-14"), "clang-format-14 is not installed")
    def test_unformatted_code_is_found(self):
        style = {".clang-format": "BasedOnStyle: Google\n"}
        self.assertEqual(findings("format", style | {"agent/driver/a.cpp": "int  a ;\n"}), ["agent/driver/a.cpp:1"])
        self.assertEqual(findings("format", style | {"agent/driver/a.cpp": "int a;\n"}), [])

    def test_ci_requires_the_formatter(self):
        with tempfile.TemporaryDirectory() as empty:
            environment = {"PATH": empty, "CI": "true"}
            self.assertEqual(findings("format", {"agent/driver/a.cpp": ""}, environment), ["scripts/tidy:1"])
            self.assertEqual(findings("format", {"agent/driver/a.cpp": ""}, environment | {"CI": ""}), [])

    def test_every_check_is_tested_here(self):
        names = subprocess.run([sys.executable, str(TIDY), "--list"], text=True, capture_output=True, check=True)
        text = Path(__file__).read_text()
        for name in names.stdout.split():
            self.assertIn(f'"{name}"', text)


if __name__ == "__main__":
    os.environ.pop("CI", None)
    unittest.main()
