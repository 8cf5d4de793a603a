// Reads a pod of an indexed Kubernetes job: its index, and the names by which the pods find each other. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/config/environment.h"
#include "rendezvous/base/error.h"

namespace muster::launcher {

struct KubernetesPod {
    std::uint32_t index = 0;
    std::string job;         ///< The job's name. Empty: HOSTNAME is not JOB-INDEX (hostNetwork).
    std::string first_name;  ///< Name of pod 0 that the other pods can resolve. Empty: this pod's name has no domain.
};

/// True in a pod of an indexed job, unless this process is inside a worker of another muster.
bool is_kubernetes_pod(const Environment& environment);

/// Call it if is_kubernetes_pod(). `hosts_file` is the text of /etc/hosts: the kubelet writes the pod's name with its
/// domain there if the pod has a subdomain (of a headless service). The error is one line for the user.
Result<KubernetesPod> kubernetes_pod(const Environment& environment, std::string_view hosts_file);

/// The hosts of a job of so many pods, as Slurm writes them ("train-[0-3]"), in its first pod. Empty elsewhere, or if
/// the pods' hosts are unknown.
std::string kubernetes_hosts_of_first_pod(const Environment& environment, std::uint32_t pod_count);

}  // namespace muster::launcher
