#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/doctor/doctor_report.h"
#include "agent/doctor/health_verdict.h"
#include "agent/doctor/known_settings.h"
#include "tests/support/catch.h"
#include "tests/unit/agent/doctor/clean_node.h"

using namespace muster;
using namespace muster::agent;
using namespace muster::agent::test;

namespace {

std::vector<Finding> unknown(const DoctorFacts& facts) {
    auto findings = examine(facts, {}, {});
    std::erase_if(findings, [](const Finding& one) { return one.level != Level::unknown; });
    return findings;
}

Finding finding(Level level) {
    return {"shared-memory", level, "/dev/shm", "64 MiB", "at least 1024 MiB", "Buffers | more.", "mount it larger"};
}

}  // namespace

TEST_CASE("a look without its last line was cut, and keeps its whole records") {
    const auto look = parse_look("disk\tpath=/a b\tfree=7\nversion\tof=x\nhalf\tpa", "no answer within 3 s");
    CHECK(look.state == Look::State::cut);
    CHECK(look.why == "no answer within 3 s");
    REQUIRE(look.records.size() == 2);
    CHECK(look.records[0].text("path") == "/a b");
    CHECK(look.records[0].number("free") == 7);
    CHECK(look.records[0].number("path") == std::nullopt);
    CHECK(look.records[0].text("other").empty());
    CHECK(parse_look("a\tb=c\nend\n", "no answer within 3 s").state == Look::State::done);
    CHECK(parse_look("note start muster-facts: No such file\n", "it ended early").why ==
          "start muster-facts: No such file");
    CHECK(parse_look("", "it ended early").state == Look::State::cut);
    CHECK(parse_look("a\tb=\x1b[2J\nend\n", "").records[0].text("b") == "\\x1b[2J");
}

TEST_CASE("a look that was cut is a finding of its own that names the directory") {
    auto facts = clean_node();
    facts.looks["disks /mnt/slow"] = parse_look("", "no answer within 3 s");
    facts.looks["gpus"] = parse_look("", "no answer within 4.5 s");
    const auto findings = unknown(facts);
    REQUIRE(findings.size() == 2);
    CHECK(findings[0].check == "disks");
    CHECK(findings[0].what == "/mnt/slow");
    CHECK(findings[0].measured == "no answer within 3 s");
    CHECK(findings[1].check == "gpus");
    CHECK(findings[1].what == "the look at gpus");
    CHECK(doctor_exit_code(findings) == 3);
    // Names of GPUs come from the look at them.
    const std::set<std::string> skip{"disks", "gpus", "gpu-between", "versions"};
    CHECK(examine(facts, {}, skip) == examine(clean_node(), {}, skip));
}

TEST_CASE("a check or a look that is skipped finds nothing") {
    auto facts = clean_node();
    facts.looks["system"].records.push_back(fact("shm bytes=1"));
    std::erase_if(facts.looks["system"].records, [](const auto& one) { return one.number("bytes") == 536870912000; });
    CHECK(examine(facts, {}, {}).front().check == "shared-memory");
    for (const char* name : {"shared-memory", "system"})
        for (const auto& one : examine(facts, {}, {name})) CHECK(one.check != "shared-memory");
    const auto all = check_count(facts, {});
    CHECK(check_count(facts, {"shared-memory"}) == all - 1);
    // A look that was not taken, as those of other levels.
    CHECK(check_count({}, {}) ==
          static_cast<std::size_t>(std::ranges::count(check_table(), std::string_view("settings"), &Check::look)));
    facts.looks["nodes"] = look_of({"nodes expected=2 came=2"});
    CHECK(check_count(facts, {}) ==
          all + static_cast<std::size_t>(std::ranges::count(check_table(), std::string_view("nodes"), &Check::look)));
    CHECK(check_skip_names({"shared-memory", "gpus"}).has_value());
    CHECK(check_skip_names({"shared-memry"}).error().context ==
          "there is no check 'shared-memry'; the nearest is shared-memory");
}

TEST_CASE("limits are read from lines, and a wrong line is named") {
    const auto limits = parse_limits("# this machine\nshm-mib = 65536\nlookup_ms=5\n");
    REQUIRE(limits.has_value());
    CHECK(limits->of("shm-mib") == 65536);
    CHECK(limits->of("lookup-ms") == 5);
    CHECK(limits->of("open-files") == 1024);
    CHECK(parse_limits("\nshm-mb = 1\n").error().context ==
          "line 2: there is no limit 'shm-mb'; the nearest is shm-mib");
    CHECK(parse_limits("shm-mib = many").error().context ==
          "line 1: shm-mib is 'many'; write a whole number from 0 to 1000000000");
    CHECK(parse_limits("shm-mib = -1").error().context.starts_with("line 1: shm-mib is '-1'"));
    CHECK(parse_limits("shm-mib\n").error().context.starts_with("line 1: "));
    CHECK(parse_limits("")->of("shm-mib") == 1024);
}

TEST_CASE("every limit changes what a check or a look does") {
    for (const auto& row : limit_table()) {
        CHECK(DoctorLimits().of(row.name) == row.value);
        CHECK(std::string_view(row.help).ends_with("."));
    }
}

TEST_CASE("everything that has a name can be explained") {
    for (const auto& check : check_table()) {
        const auto text = explain(check.name);
        REQUIRE(text.has_value());
        CHECK(text->find(check.mend) != std::string::npos);
        CHECK(explain_all().find(check.name) != std::string::npos);
        CHECK(explain(check.look).has_value());
    }
    for (const auto& row : limit_table()) CHECK(explain(row.name).has_value());
    for (const auto& setting : known_settings()) CHECK(explain(setting.name).has_value());
    CHECK(explain("nonsense-at-all").error().context ==
          "nothing has the name 'nonsense-at-all'; `muster doctor explain` lists all");
    CHECK(std::ranges::is_sorted(known_settings(), {}, &KnownSetting::name));
}

TEST_CASE("the exit code is that of the gravest finding") {
    CHECK(doctor_exit_code({}) == 0);
    CHECK(doctor_exit_code({finding(Level::info)}) == 0);
    CHECK(doctor_exit_code({finding(Level::info), finding(Level::warning)}) == 1);
    CHECK(doctor_exit_code({finding(Level::warning), finding(Level::unknown)}) == 3);
    CHECK(doctor_exit_code({finding(Level::unknown), finding(Level::critical)}) == 2);
}

TEST_CASE("the findings as text, as JSON and for Nagios") {
    DoctorReport report{.host = "gpu07",
                        .version = "1.0",
                        .findings = {finding(Level::warning), finding(Level::info)},
                        .check_count = 40,
                        .took_ms = 210};
    CHECK(
        doctor_text(report) ==
        "warning: shared-memory: /dev/shm: 64 MiB; expected at least 1024 MiB. Buffers | more. Mend: mount it larger\n"
        "info: shared-memory: /dev/shm: 64 MiB; expected at least 1024 MiB\n"
        "gpu07: 40 checks in 210 ms: 1 warning, 1 info\n");
    CHECK(doctor_nagios(report) ==
          "MUSTER WARNING - 1 warning, 1 info; shared-memory: /dev/shm: 64 MiB | checks=40 time=210ms\n"
          "warning: shared-memory: /dev/shm: 64 MiB; expected at least 1024 MiB. Buffers / more. Mend: mount it "
          "larger\n");
    const auto json = nlohmann::json::parse(doctor_json(report));
    CHECK(json["exit_code"] == 1);
    CHECK(json["findings"][0]["level"] == "warning");
    CHECK(json["findings"][0]["mend"] == "mount it larger");
    report.findings = {};
    CHECK(doctor_nagios(report) == "MUSTER OK - no findings | checks=40 time=210ms\n");
    report.findings = {finding(Level::unknown)};
    CHECK(doctor_nagios(report).starts_with("MUSTER UNKNOWN - 1 could not look; "));
    CHECK(nlohmann::json::parse(doctor_json(report))["findings"][0]["level"] == "unknown");
}

TEST_CASE("the exit code of a health check decides, and its last line is the reason") {
    using State = HealthVerdict::State;
    const auto verdict = [](std::string_view output) { return read_health(output, "30 s"); };
    CHECK(verdict("exit 0\nfine\n") == HealthVerdict{State::healthy, {}});
    CHECK(verdict("exit 1\nchecks\nGPU 3 is lost  \n\n\n") == HealthVerdict{State::sick, "GPU 3 is lost"});
    CHECK(verdict("exit 3\n") == HealthVerdict{State::sick, "exit code 3"});
    CHECK(verdict("exit 1\n\x1b[31mred\n").why == "\\x1b[31mred");
    CHECK(verdict(cat("exit 1\n", std::string(9000, 'x'), "\n")).why.size() == 512);
    CHECK(verdict("exit 127\nsh: 1: nhc: not found\n") ==
          HealthVerdict{State::unknown, "it cannot be run: sh: 1: nhc: not found"});
    CHECK(verdict("limit\nit hangs") == HealthVerdict{State::unknown, "it did not end within 30 s"});
    CHECK(verdict("exit 1\nexit 0\n") == HealthVerdict{State::sick, "exit 0"});
    CHECK(verdict("refused start /usr/bin/env: No such file\n").why == "start /usr/bin/env: No such file");
    CHECK(verdict("note start muster-check: No such file\n").why == "start muster-check: No such file");
    CHECK(verdict("") == HealthVerdict{State::unknown, "muster-check ended without an answer"});
    CHECK(verdict("exit soon\n").state == State::unknown);
}
