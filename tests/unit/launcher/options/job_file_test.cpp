// The file of --config: lines in, options and a program out, or complaints with their places.
#include "launcher/options/job_file.h"

#include "launcher/options/options.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"

using namespace muster;
using namespace muster::launcher;

namespace {

using Lines = std::vector<std::string>;

Lines complaints_of(std::string_view text) {
    return parse_job_file(text, "f").complaints;
}

ParsedOptions parsed(std::string_view text, const Lines& words = {}, const Environment& environment = {}) {
    return parse_options(words, environment, parse_job_file(text, "f"));
}

LaunchConfig config_from(std::string_view text, const Lines& words = {}, const Environment& environment = {}) {
    const auto result = parsed(text, words, environment);
    if (const auto* error = std::get_if<UsageError>(&result)) FAIL(error->line);
    return std::get<Launch>(result).config;
}

std::string error_from(std::string_view text) {
    const auto result = parsed(text);
    const auto* error = std::get_if<UsageError>(&result);
    return error != nullptr ? error->line : "no error";
}

}  // namespace

TEST_CASE("a file gives options, the program and its arguments") {
    const auto config = config_from(
        "nnodes = 1:4\nnproc_per_node = 8\nrestart-early-failures = yes\nmax-restarts = 2\nrdzv-backend = c10d\n"
        "rdzv-endpoint = h:1\nprogram = train.py\narguments = --lr 3e-4\narguments = --name 'two words'\n");
    CHECK(config.nodes_max == 4);
    CHECK(config.workers_per_node == 8);
    CHECK(config.restart_early_failures);
    CHECK(config.script == "train.py");
    CHECK(config.arguments == Lines{"--lr", "3e-4", "--name", "two words"});
}

TEST_CASE("the command line beats the file, and the file the environment") {
    CHECK(config_from("role = file\nprogram = a", {}, {{"MUSTER_ROLE", "environment"}}).role == "file");
    CHECK(config_from("role = file\nprogram = a", {"--role=words"}).role == "words");
    const auto config = config_from("program = a\narguments = b", {"train.py", "c"});
    CHECK(config.script == "train.py");
    CHECK(config.arguments == Lines{"c"});
    // A flag that is off in the file is off whatever the environment says.
    CHECK_FALSE(config_from("allow-faults = no\nprogram = a", {}, {{"MUSTER_ALLOW_FAULTS", "1"}}).allow_faults);
}

TEST_CASE("every wrong line is told, with its number and what would be right") {
    CHECK(complaints_of("nproc-per-nod = 2\n\nnnodes = many\nstandalone = maybe\nprogram =\nrole = a\nrole = b\n"
                        "arguments = 'x\nhelp = yes\nconfig = g\nqqqqqqqqq = 1\nnonsense") ==
          Lines{"f:12: got 'nonsense'; accepted is KEY = VALUE, or # before a comment",
                "f:1: unknown key 'nproc-per-nod'; the nearest known key is nproc-per-node (muster --help lists all, "
                "without their dashes)",
                "f:3: nnodes: got 'many'; accepted is N or MIN:MAX with 0 < MIN <= MAX <= 20000, e.g. 2 or 1:4",
                "f:4: standalone: got 'maybe'; accepted is yes or no",
                "f:5: program: the value is missing; write program = train.py",
                "f:7: role is a duplicate of line 6; remove one of them",
                "f:8: arguments: unclosed quote, or \\ at the end of the line",
                "f:9: unknown key 'help' (muster --help lists all, without their dashes)",
                "f:10: unknown key 'config' (muster --help lists all, without their dashes)",
                "f:11: unknown key 'qqqqqqqqq' (muster --help lists all, without their dashes)"});
}

TEST_CASE("the launcher tells the first wrong line, and contradictions as on the command line") {
    CHECK(error_from("nnodes = x\nnod = y\nprogram = a").starts_with("muster: f:1: nnodes: got 'x'; accepted is"));
    CHECK(error_from("node-failures = 2/5\nprogram = a").find("contradicts --max-restarts 0") != std::string::npos);
    CHECK(error_from("nnodes = 1").find("the program is missing") != std::string::npos);
}

TEST_CASE("a file that cannot be read is named, and without --config there is none") {
    CHECK(named_job_file({"--config", "/nowhere/x.conf"}).error().context.find("/nowhere/x.conf") != std::string::npos);
    CHECK(named_job_file({"--nnodes=1", "train.py", "--config", "theirs"}).value().values.empty());
    CHECK(named_job_file({"--no-such-option"}).value().values.empty());
}
