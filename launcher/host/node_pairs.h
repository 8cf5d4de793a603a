// Level 2 of muster doctor: the nodes test each other in pairs. It starts muster as a job of one worker a node,
// muster-pairs (worker_runtime/pairs). Rendezvous, keys, schedulers and ports are therefore those of any job.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/doctor/doctor_limits.h"
#include "agent/doctor/look.h"
#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

/// What Ctrl-C does while the nodes are tested.
enum class InterruptedTest {
    is_reported,    ///< It ends the job of the test; this process goes on and reports what is known.
    ends_launcher,  ///< It ends this process, too.
};

/// A variable of the muster of a test before a job: it leaves the comparison of versions to the job itself.
inline constexpr std::string_view leaves_versions = "MUSTER_PAIRS_BEFORE_JOB";

/// A job of one worker a node in which the nodes test each other.
struct PairsJob {
    int expected_count = 0;                 ///< Nodes that should come. 0: not known.
    std::vector<std::string> options;       ///< Options of muster: where the nodes meet, and under which name.
    std::string directory = "/tmp";         ///< For the result.
    std::vector<std::string> without = {};  ///< Variables that the job's muster does not get.
    std::vector<std::string> with = {};     ///< "NAME=VALUE": variables that it gets besides.
    InterruptedTest interrupted = InterruptedTest::is_reported;
    Duration limit = 5min;            ///< For meeting and test.
    agent::DoctorLimits limits = {};  ///< Those of the node with rank 0 count.
};

/// Blocks until the job has ended, been stopped for 10 s, or met its limit. The look has the records of muster-pairs
/// (pair_search.h); without a result it was cut, and says why. The job's messages go to stderr. The job ends with this
/// process.
agent::Look run_pairs_job(const PairsJob& job);

struct PairsOrder {
    int node_count = 0;                       ///< 0: what the scheduler and variables tell the job.
    std::string endpoint;                     ///< --rdzv-endpoint. Empty: what the scheduler tells.
    std::string job = "doctor";               ///< --rdzv-id
    int wait_seconds = 30;                    ///< Nodes that have not come by then are left out, and named.
    std::string directory = "/tmp";           ///< For the result.
    std::vector<std::string> muster_options;  ///< Further options of muster, as given.
    agent::DoctorLimits limits;               ///< Those of the node with rank 0 count.
};

/// Whether the order, a scheduler or a variable of muster tells where the nodes meet.
bool has_meeting(const PairsOrder& pairs, const Environment& environment);

/// The words behind `muster` with which the job starts.
std::vector<std::string> pairs_job_words(const PairsOrder& order);

/// run_pairs_job() for `muster doctor --nnodes`. One node has no pair, and starts no job.
agent::Look look_between_nodes(const PairsOrder& order);

}  // namespace muster::launcher
