// The findings as text for people, as JSON, and for Nagios. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "agent/doctor/finding.h"

namespace muster::agent {

struct DoctorReport {
    std::string host;
    std::string version;  ///< Of muster.
    std::vector<Finding> findings;
    std::size_t check_count = 0;
    std::size_t took_ms = 0;
};

/// 0 ok, 1 warning, 2 critical, 3 could not look: the codes of Nagios' plugins. A critical finding precedes 3, and 3
/// precedes a warning.
int doctor_exit_code(const std::vector<Finding>& findings);

/// "1 critical, 2 warnings"; "no findings".
std::string findings_summary(const std::vector<Finding>& findings);
/// One line for each finding, and a last line that counts them.
std::string doctor_text(const DoctorReport& report);
/// One finding as a line, without its end.
std::string finding_line(const Finding& finding);
std::string doctor_json(const DoctorReport& report);
/// "MUSTER WARNING - ..." on the first line, the findings behind it.
std::string doctor_nagios(const DoctorReport& report);

}  // namespace muster::agent
