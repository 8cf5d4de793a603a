// The checks of muster doctor: one row each. Pure.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/doctor/doctor_limits.h"
#include "agent/doctor/finding.h"
#include "agent/doctor/look.h"
#include "rendezvous/base/error.h"

namespace muster::agent {

/// By variable. As the launcher's Environment.
using Variables = std::map<std::string, std::string, std::less<>>;

/// Everything that the checks judge.
struct DoctorFacts {
    /// By the name of the look; those of directories are "disks DIR".
    std::map<std::string, Look, std::less<>> looks;
    Variables environment;
    bool is_root = false;

    /// The look of that name. One that was not taken has no records.
    [[nodiscard]] const Look& look(std::string_view name) const;
};

/// The GPUs that a process sees that is started from here. NVML lists those of other jobs on this node, too.
std::vector<const FactRecord*> usable_gpus(const DoctorFacts& facts);

/// The first active InfiniBand port. Ethernet ports do not count: RDMA's drivers load for every such card. Null: none.
const FactRecord* active_infiniband(const DoctorFacts& facts);

/// What a check measured. Its row completes it to a Finding.
struct Measured {
    Level level;
    std::string what;
    std::string measured;
    std::string expected;
    std::string mend = {};  ///< In place of the row's.
};

struct Check {
    std::string_view name;
    std::string_view look;  ///< The look that it judges; "settings" judges the environment.
    std::string_view why;
    std::string_view mend;
    std::vector<Measured> (*judge)(const DoctorFacts& facts, const DoctorLimits& limits);
};

/// All checks, in the order of the guide.
const std::vector<Check>& check_table();

/// The rows of one part. check_table() joins them.
std::vector<Check> system_checks();
std::vector<Check> network_checks();
std::vector<Check> firewall_checks();
std::vector<Check> device_checks();
std::vector<Check> gpu_checks();
std::vector<Check> gpu_test_checks();
std::vector<Check> gpu_between_checks();
std::vector<Check> setting_checks();
std::vector<Check> pair_checks();

/// Refuses a word that is neither a check nor a look, and names the nearest.
Result<void> check_skip_names(const std::set<std::string>& names);

/// Judges the facts: the findings of all checks that are not in `skip` by their own name or their look's, the gravest
/// first. A look that was cut is a finding of its own, of level unknown.
std::vector<Finding> examine(const DoctorFacts& facts, const DoctorLimits& limits, const std::set<std::string>& skip);

/// The number of checks that `skip` leaves, of those whose look was taken.
std::size_t check_count(const DoctorFacts& facts, const std::set<std::string>& skip);

/// `muster doctor explain NAME`: a check, a look, a limit or a variable. The error names the nearest.
Result<std::string> explain(std::string_view name);
/// Without a name: all of them, one line each.
std::string explain_all();

}  // namespace muster::agent
