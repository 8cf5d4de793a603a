#include "launcher/scheduler/kubernetes_pod.h"

#include "launcher/option_values.h"
#include "rendezvous/base/text.h"

namespace muster::launcher {

namespace {

constexpr std::string_view index_variable = "JOB_COMPLETION_INDEX";

/// ".train.default.svc.cluster.local" of "10.0.0.3 train-2.train.default.svc.cluster.local train-2"; empty: none.
std::string domain_of(std::string_view host, std::string_view hosts_file) {
    for (auto line : split(hosts_file, '\n')) {
        line = line.substr(0, line.find('#'));
        std::string blanks(line);
        for (auto& c : blanks)
            if (c == '\t') c = ' ';
        for (const auto word : split(blanks, ' '))
            if (word.starts_with(host) && word.substr(host.size()).starts_with('.'))
                return std::string(word.substr(host.size()));
    }
    return {};
}

}  // namespace

bool is_kubernetes_pod(const Environment& environment) {
    return lookup(environment, index_variable) && !lookup(environment, "MUSTER_AGENT_SOCKET");
}

Result<KubernetesPod> kubernetes_pod(const Environment& environment, std::string_view hosts_file) {
    const auto text = value_or_empty(environment, index_variable);
    const auto index = whole_number(text, 0, 1'000'000);
    if (!index)
        return Error{Errc::invalid_argument, cat(index_variable, ": got '", text,
                                                 "'; accepted is the pod's number, from 0; or write --from=none")};
    const auto host = value_or_empty(environment, "HOSTNAME");
    const auto end = cat('-', *index);
    if (!host.ends_with(end) || host.size() == end.size())
        return Error{
            Errc::invalid_argument,
            cat("HOSTNAME: got '", host, "', but pod ", *index, " of an indexed job is called JOB", end,
                "; write --from=none, and --rdzv-backend c10d, --rdzv-endpoint HOST:PORT and --rdzv-id yourself")};
    const auto job = host.substr(0, host.size() - end.size());
    const auto domain = domain_of(host, hosts_file);
    return KubernetesPod{.index = static_cast<std::uint32_t>(*index),
                         .job = std::string(job),
                         .first_name = domain.empty() ? std::string() : cat(job, "-0", domain)};
}

}  // namespace muster::launcher
