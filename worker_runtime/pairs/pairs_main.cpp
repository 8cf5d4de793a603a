// muster-pairs NODES: one worker of the job that `muster doctor --nnodes` starts. It tests pairs of nodes with the
// other ranks and writes the result to the file MUSTER_PAIRS_FILE, on every node. NODES is the number of nodes that
// should have come. Of MUSTER_PAIRS_LIMITS (search_limits.h) those of rank 0 count.
//
// It listens as ranks of a job do (worker_runtime/tcp): only ranks with the job's key are accepted, where it has one.
// Exit codes: 0 the result is in the file; 1 there is none, or a rank hangs, with the reason on stderr; 2 wrong
// arguments.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include <cstdio>

#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/system/replace_file.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/store_client/store_client.h"
#include "worker_runtime/context/choices.h"
#include "worker_runtime/core/environment.h"
#include "worker_runtime/pairs/own_machine.h"
#include "worker_runtime/pairs/pair_search.h"

using namespace muster;
using namespace muster::runtime;

namespace {

int fail(const std::string& why) {
    std::fprintf(stderr, "muster-pairs: %s\n", why.c_str());
    return 1;
}

/// The file is there. When it was removed, whoever waited for it was stopped, and nothing must be left behind.
bool write_result(const std::string& path, std::string_view text) {
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
    return file.valid() && write_whole(file.get(), text);
}

/// Once this rank has its result. An error: a rank hangs. The job would wait for it without end, so this rank should
/// fail, which ends the job.
Result<void> wait_for_others(const SearchTerms& terms) {
    constexpr Duration limit = 6s;  // a rank may still have to end a test (pair_test.h)
    if (MUSTER_TRY(terms.store->add("ended", 1)) == terms.world_size) return terms.store->set("all-ended", "");
    // One rank that fails is enough. The others are for the case that rank 0 hangs.
    const auto all = terms.store->get("all-ended", terms.rank == 0 ? limit : 2 * limit);
    if (!all) return Error{all.error().code, "a rank did not answer, so the job ends without it"};
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    SearchTerms terms;
    const auto path = variable("MUSTER_PAIRS_FILE").value_or(std::string());
    const auto limits = read_search_limits(variable("MUSTER_PAIRS_LIMITS").value_or(std::string()));
    if (argc != 2 || path.empty() || !limits || !parse_number(std::string_view(argv[1]), terms.expected_count)) {
        std::fputs("usage: muster-pairs NODES, as a worker of a job, with MUSTER_PAIRS_FILE and MUSTER_PAIRS_LIMITS\n",
                   stderr);
        return 2;
    }
    terms.limits = *limits;
    // What stays there if this process hangs.
    write_result(path, "begun\n");
    ::unsetenv("MUSTER_TRANSPORT");  // between nodes it is TCP, whatever a trainer uses
    const auto environment = read_environment(variable);
    if (!environment) return fail(environment.error().context);
    auto client =
        rendezvous::StoreClient::connect({environment->store_host, environment->store_port}, {.connect_timeout = 30s});
    if (!client) return fail(cat("reach the store of rank 0: ", client.error().context));
    terms.rank = environment->rank;
    terms.world_size = environment->world_size;
    terms.networks = own_networks(environment->store_host);
    terms.store = std::make_shared<RoundStore>(std::move(*client), cat("doctor/", environment->round, '/'));
    const auto found = search_bad_nodes(terms);
    if (!found) return fail(found.error().context);
    if (!write_result(path, *found)) return fail(error_from_errno(errno, cat("write ", path)).context);
    const auto ended = wait_for_others(terms);
    return ended ? 0 : fail(ended.error().context);
}
