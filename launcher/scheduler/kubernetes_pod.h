// What Kubernetes says about a pod of an indexed job: its index, and names by which the pods find each other. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

struct KubernetesPod {
    std::uint32_t index = 0;
    std::string job;         ///< the job's name; empty: HOSTNAME is not JOB-INDEX (hostNetwork)
    std::string first_name;  ///< of pod 0, as the others can look it up; empty: this pod's own has no domain
};

/// Is this a pod of an indexed job, and not within a worker of another muster?
bool is_kubernetes_pod(const Environment& environment);

/// Of such a pod. `hosts_file` is /etc/hosts, into which the kubelet writes the pod's name with its domain where the
/// pod has a subdomain (that of a headless service). The error is one line for the user.
Result<KubernetesPod> kubernetes_pod(const Environment& environment, std::string_view hosts_file);

}  // namespace muster::launcher
