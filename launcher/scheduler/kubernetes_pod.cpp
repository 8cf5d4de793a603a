#include "launcher/scheduler/kubernetes_pod.h"

#include "launcher/config/option_values.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

constexpr std::string_view index_variable = "JOB_COMPLETION_INDEX";

/// ".train.default.svc.cluster.local" of "10.0.0.3 train-2.train.default.svc.cluster.local train-2". Empty: none.
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
    KubernetesPod pod{.index = static_cast<std::uint32_t>(*index), .job = {}, .first_name = {}};
    auto host = value_or_empty(environment, "HOSTNAME");
    host = host.substr(0, host.find('.'));  // with setHostnameAsFQDN it contains the domain
    const auto end = cat('-', *index);
    if (!host.ends_with(end) || host.size() == end.size()) return pod;  // with hostNetwork it is the node's name
    pod.job = host.substr(0, host.size() - end.size());
    if (const auto domain = domain_of(host, hosts_file); !domain.empty()) pod.first_name = cat(pod.job, "-0", domain);
    return pod;
}

std::string kubernetes_hosts_of_first_pod(const Environment& environment, std::uint32_t pod_count) {
    if (!is_kubernetes_pod(environment) || pod_count == 0) return {};
    const auto pod = kubernetes_pod(environment, {});
    if (!pod || pod->index != 0 || pod->job.empty()) return {};
    return cat(pod->job, "-[0-", pod_count - 1, "]");
}

}  // namespace muster::launcher
