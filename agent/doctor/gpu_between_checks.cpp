// What copies between the GPUs of a node found (worker_runtime/gpu_test/gpu_between.h).
#include <algorithm>
#include <map>
#include <set>

#include "agent/doctor/check_table.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

using Found = std::vector<Measured>;

std::string label_of(const DoctorFacts& facts, std::string_view uuid) {
    for (const auto* gpu : facts.look("gpus").all("gpu"))
        if (gpu->text("uuid") == uuid) return gpu_label(*gpu);
    return std::string(uuid);
}

/// A GPU most of whose copies are wrong is named once, instead of each of its pairs; the rest are pairs.
Found wrong_copies(const DoctorFacts& facts, const Look& look) {
    std::map<std::string, std::set<std::string>> met, bad;
    for (const auto* pair : look.all("between")) {
        const auto &from = pair->text("from"), &to = pair->text("to");
        const bool is_wrong = pair->number("wrong").value_or(0) > 0;
        for (const auto& [one, other] : {std::pair(from, to), std::pair(to, from)}) {
            met[one].insert(other);
            if (is_wrong) bad[one].insert(other);
        }
    }
    Found found;
    for (;;) {
        const auto worst = std::ranges::max_element(bad, {}, [](const auto& entry) { return entry.second.size(); });
        if (worst == bad.end() || worst->second.size() < 2 || worst->second.size() * 2 <= met[worst->first].size())
            break;
        found.push_back({Level::critical, label_of(facts, worst->first),
                         cat("words differ after copies with ", worst->second.size(), " of ", met[worst->first].size(),
                             " other GPUs"),
                         "what was copied"});
        const auto others = worst->second;
        for (const auto& other : others) bad[other].erase(worst->first);
        bad.erase(worst);
    }
    for (const auto* pair : look.all("between")) {
        const auto &from = pair->text("from"), &to = pair->text("to");
        if (const auto wrong = pair->number("wrong").value_or(0); wrong > 0 && bad[from].contains(to))
            found.push_back({Level::critical, cat(label_of(facts, from), " to ", label_of(facts, to)),
                             cat(wrong, " words of ", pair->text("mib"), " MiB differ after a copy"),
                             "what was copied"});
    }
    return found;
}

Found gpu_between(const DoctorFacts& facts, const DoctorLimits&) {
    const auto& look = facts.look("gpu-between");
    constexpr std::string_view what = "copies between the GPUs of this node";
    auto found = wrong_copies(facts, look);
    if (const auto* failure = look.first("failure")) {
        const auto steps = look.all("step");
        found.push_back({failure->text("kind") == "gpu" ? Level::critical : Level::unknown, std::string(what),
                         cat(failure->text("text"), steps.empty() ? "" : cat(", in ", steps.back()->text("name"))),
                         "copies that are complete"});
    }
    const auto pairs = look.all("between");
    if (pairs.empty()) return found;
    const auto speed = [](const FactRecord* pair) { return pair->number("mbytes-per-s").value_or(0); };
    const auto [slowest, fastest] = std::ranges::minmax(pairs, {}, speed);
    const auto direct =
        std::ranges::count_if(pairs, [](const auto* pair) { return pair->number("direct").value_or(0) == 1; });
    found.push_back(
        {Level::info, std::string(what),
         cat(speed(slowest), " to ", speed(fastest), " MB/s; the slowest from ", label_of(facts, slowest->text("from")),
             " to ", label_of(facts, slowest->text("to")), "; ", direct, " of ", pairs.size(), " without the host"),
         "the same on all nodes"});
    return found;
}

}  // namespace

std::vector<Check> gpu_between_checks() {
    return {{"gpu-between", "gpu-between", "Collectives of this node compute with what such copies bring.",
             "check pci-acs and iommu; nvidia-smi topo -p2p r; until it is mended: NCCL_P2P_DISABLE=1", gpu_between}};
}

}  // namespace muster::agent
