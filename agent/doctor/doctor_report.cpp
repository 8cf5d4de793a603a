#include "agent/doctor/doctor_report.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

std::size_t count_of(const std::vector<Finding>& findings, Level level) {
    return static_cast<std::size_t>(std::ranges::count(findings, level, &Finding::level));
}

}  // namespace

std::string findings_summary(const std::vector<Finding>& findings) {
    std::string out;
    for (const auto level : {Level::critical, Level::unknown, Level::warning, Level::info}) {
        const auto count = count_of(findings, level);
        if (count == 0) continue;
        const bool is_plural = level == Level::warning && count > 1;
        out += cat(out.empty() ? "" : ", ", count, " ", level_name(level), is_plural ? "s" : "");
    }
    return out.empty() ? "no findings" : out;
}

int doctor_exit_code(const std::vector<Finding>& findings) {
    constexpr std::array<int, 4> codes{0, 1, 3, 2};  // by Level
    auto worst = Level::info;
    for (const auto& one : findings) worst = std::max(worst, one.level);
    return codes[static_cast<std::size_t>(worst)];
}

std::string finding_line(const Finding& finding) {
    auto line = cat(level_name(finding.level), ": ", finding.check, ": ", finding.what, ": ", finding.measured,
                    "; expected ", finding.expected);
    if (finding.level == Level::info) return line;
    return line + cat(". ", finding.why, finding.mend.empty() ? "" : cat(" Mend: ", finding.mend));
}

std::string doctor_text(const DoctorReport& report) {
    std::string out;
    for (const auto& one : report.findings) out += finding_line(one) + '\n';
    return out + cat(report.host, ": ", report.check_count, " checks in ", report.took_ms,
                     " ms: ", findings_summary(report.findings), "\n");
}

std::string doctor_json(const DoctorReport& report) {
    auto findings = nlohmann::ordered_json::array();
    for (const auto& one : report.findings)
        findings.push_back({{"check", one.check},
                            {"level", one.level == Level::unknown ? "unknown" : level_name(one.level)},
                            {"what", one.what},
                            {"measured", one.measured},
                            {"expected", one.expected},
                            {"why", one.why},
                            {"mend", one.mend}});
    const nlohmann::ordered_json all{
        {"host", report.host},          {"muster", report.version},  {"exit_code", doctor_exit_code(report.findings)},
        {"checks", report.check_count}, {"took_ms", report.took_ms}, {"findings", findings}};
    return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string doctor_nagios(const DoctorReport& report) {
    constexpr std::array<std::string_view, 4> states{"OK", "WARNING", "CRITICAL", "UNKNOWN"};
    auto out = cat("MUSTER ", states[static_cast<std::size_t>(doctor_exit_code(report.findings))], " - ",
                   findings_summary(report.findings));
    // '|' begins the performance data.
    const auto add = [&out](std::string_view text) {
        for (const char c : text) out.push_back(c == '|' ? '/' : c);
    };
    for (const auto& one : report.findings)
        if (one.level != Level::info) {
            add(cat("; ", one.check, ": ", one.what, ": ", one.measured));
            break;
        }
    out += cat(" | checks=", report.check_count, " time=", report.took_ms, "ms\n");
    for (const auto& one : report.findings)
        if (one.level != Level::info) {
            add(finding_line(one));
            out += '\n';
        }
    return out;
}

}  // namespace muster::agent
