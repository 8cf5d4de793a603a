#include "launcher/host/endpoint_look_up.h"

#include <condition_variable>
#include <memory>
#include <mutex>

#include "launcher/host/program_output.h"
#include "launcher/scheduler/slurm_reason.h"
#include "rendezvous/base/sockets/name_lookup.h"

namespace muster::launcher {

namespace {

constexpr Duration stop_check_interval = 20ms;

using Addresses = std::vector<std::string>;

/// Shared with the lookup threads, which may outlive the call.
struct Answers {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t missing = 0;
    std::vector<Addresses> found;
};

Addresses numeric(const std::vector<SocketAddress>& list) {
    Addresses addresses;
    for (const auto& one : list) addresses.push_back(one.numeric());
    return addresses;
}

/// Silent without scontrol (a container).
constexpr const char* quiet_scontrol = "exec scontrol -o show node \"$0\" 2>/dev/null";

}  // namespace

std::vector<Addresses> look_up_endpoints(const std::vector<Endpoint>& endpoints, Duration limit,
                                         const std::function<bool()>& is_stopping) {
    const auto until = std::chrono::steady_clock::now() + limit;
    const auto answers = std::make_shared<Answers>();
    answers->found.resize(endpoints.size());
    std::unique_lock lock(answers->mutex);
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
        answers->found[i] = numeric(numeric_addresses(endpoints[i]));
        if (!answers->found[i].empty()) continue;
        const auto asked = look_up_detached(endpoints[i], [answers, i](LookUpAnswer answer) {
            const std::lock_guard guard(answers->mutex);
            --answers->missing;
            if (answer) answers->found[i] = numeric(*answer);
            answers->changed.notify_one();
        });
        if (asked) ++answers->missing;
    }
    while (answers->missing > 0 && std::chrono::steady_clock::now() < until && !is_stopping())
        answers->changed.wait_for(lock, stop_check_interval);
    return answers->found;
}

std::vector<std::string> slurm_node_addresses(const std::string& name, Duration limit,
                                              const std::function<bool()>& is_stopping) {
    const auto said = program_output({"sh", "-c", quiet_scontrol, name}, limit, is_stopping);
    if (!said) return {};
    const std::string address(scontrol_field(*said, "NodeAddr"));
    if (address.empty() || address == name) return {};
    return look_up_endpoints({{address, 0}}, limit, is_stopping).front();
}

}  // namespace muster::launcher
