// In the place of muster-pairs: a rank of the search for bad nodes whose answers have another form, as those of another
// build have. It tests nobody, and writes the result as every rank does.
#include <cstdio>
#include <fstream>

#include "rendezvous/base/text/text.h"
#include "rendezvous/store_client/store_client.h"
#include "worker_runtime/context/choices.h"
#include "worker_runtime/context/round_store.h"
#include "worker_runtime/core/environment.h"

using namespace muster;
using namespace muster::runtime;

int main() {
    const auto environment = read_environment(variable);
    if (!environment) return std::fprintf(stderr, "%s\n", environment.error().context.c_str()), 1;
    auto client =
        rendezvous::StoreClient::connect({environment->store_host, environment->store_port}, {.connect_timeout = 60s});
    if (!client) return std::fprintf(stderr, "%s\n", client.error().context.c_str()), 1;
    RoundStore store(std::move(*client), cat("doctor/", environment->round, '/'));
    if (!store.set(cat("host/", environment->rank), "other")) return 1;
    for (int round = 1;; ++round) {
        const auto text = store.get(cat("round/", round), 60s);
        if (!text) return std::fprintf(stderr, "%s\n", text.error().context.c_str()), 1;
        if (text->ends_with("end\n")) {
            std::ofstream file(variable("MUSTER_PAIRS_FILE").value_or(std::string()), std::ios::binary);
            file << *text;
            return file.flush() ? 0 : 1;
        }
        if (!store.set(cat("result/", round, '/', environment->rank), "9;another form")) return 1;
    }
}
