#include "tests/integration/checkpoint/disk_model.h"

#include <algorithm>
#include <set>

namespace muster::test {

namespace {

constexpr std::size_t all_subsets_max = 10;

/// What may be there of a file of which `contents` were written and `durable` was flushed.
std::vector<std::string> versions(const std::string& durable, const std::string& contents) {
    auto zeros_behind = contents;
    std::fill(zeros_behind.begin() + static_cast<std::ptrdiff_t>(contents.size() / 2), zeros_behind.end(), '\0');
    return {contents, durable, contents.substr(0, contents.size() / 2), zeros_behind};
}

/// Which of `count` changes have reached the disk.
std::vector<std::vector<bool>> choices(std::size_t count) {
    std::vector<std::vector<bool>> all;
    if (count <= all_subsets_max) {
        for (std::size_t bits = 0; bits < (std::size_t{1} << count); ++bits) {
            auto& chosen = all.emplace_back(count);
            for (std::size_t i = 0; i < count; ++i) chosen[i] = (bits >> i & 1) != 0;
        }
        return all;
    }
    for (std::size_t length = 0; length <= count; ++length) {
        std::vector<bool> beginning(count);
        std::fill_n(beginning.begin(), length, true);
        all.push_back(beginning);
        for (std::size_t i = 0; i < count; ++i) {
            all.push_back(beginning);
            all.back()[i].flip();
        }
    }
    return all;
}

}  // namespace

/// One way in which a power cut may go.
struct DiskModel::Cut {
    const DiskModel& model;
    std::set<std::uint64_t> reached;      ///< changes, by time
    std::map<int, std::string> contents;  ///< of files that have several versions

    void add(int number, const std::string& path, DiskState& state) const {
        const auto& node = model.nodes_[static_cast<std::size_t>(number)];
        if (!node.folder) {
            const auto chosen = contents.find(number);
            state[path] = chosen != contents.end() ? chosen->second : node.durable;
            return;
        }
        if (!path.empty()) state[path + "/"];
        auto names = node.names;
        for (const auto& change : node.changes) {
            if (!reached.contains(change.when)) continue;
            names.erase(change.gone);
            if (!change.made.empty()) names[change.made] = change.node;
        }
        for (const auto& [name, child] : names) add(child, path.empty() ? name : path + "/" + name, state);
    }
};

DiskModel::Node& DiskModel::at(int node) {
    const auto index = static_cast<std::size_t>(node);
    if (nodes_.size() <= index) nodes_.resize(index + 1);
    return nodes_[index];
}

void DiskModel::apply(const DiskEvent& event) {
    ++time_;
    switch (event.kind) {
        case DiskEvent::Kind::make_folder:
        case DiskEvent::Kind::make_file:
            at(event.node) = {};
            at(event.node).folder = event.kind == DiskEvent::Kind::make_folder;
            at(event.folder).changes.push_back({.gone = {}, .made = event.name, .node = event.node, .when = time_});
            return;
        case DiskEvent::Kind::contents: at(event.folder).contents = event.contents; return;
        case DiskEvent::Kind::rename:
            at(event.folder)
                .changes.push_back({.gone = event.name, .made = event.new_name, .node = event.node, .when = time_});
            return;
        case DiskEvent::Kind::remove:
            at(event.folder).changes.push_back({.gone = event.name, .made = {}, .when = time_});
            return;
        case DiskEvent::Kind::flush: break;
    }
    auto& node = at(event.folder);
    node.durable = node.contents;
    for (const auto& change : node.changes) {
        node.names.erase(change.gone);
        if (!change.made.empty()) node.names[change.made] = change.node;
    }
    node.changes.clear();
}

std::vector<int> DiskModel::reachable() const {
    std::vector<int> found{0};
    std::set<int> seen{0};
    for (std::size_t i = 0; i < found.size(); ++i) {
        const auto& node = nodes_[static_cast<std::size_t>(found[i])];
        const auto visit = [&](int child) {
            if (seen.insert(child).second) found.push_back(child);
        };
        for (const auto& [name, child] : node.names) visit(child);
        for (const auto& change : node.changes) {
            if (!change.made.empty()) visit(change.node);
        }
    }
    return found;
}

bool DiskModel::for_each_state(const std::function<bool(const DiskState&)>& visit) const {
    std::vector<std::uint64_t> changes;
    std::map<int, std::vector<std::string>> files;
    for (const auto number : reachable()) {
        const auto& node = nodes_[static_cast<std::size_t>(number)];
        for (const auto& change : node.changes) changes.push_back(change.when);
        if (node.contents != node.durable) files[number] = versions(node.durable, node.contents);
    }
    std::sort(changes.begin(), changes.end());
    for (const auto& chosen : choices(changes.size())) {
        Cut cut{.model = *this, .reached = {}, .contents = {}};
        for (std::size_t i = 0; i < changes.size(); ++i) {
            if (chosen[i]) cut.reached.insert(changes[i]);
        }
        const auto look = [&] {
            DiskState state;
            cut.add(0, "", state);
            return visit(state);
        };
        // All files whole, all lost, and then each in each version while the others are whole.
        if (!look()) return false;
        for (const auto& [number, texts] : files) cut.contents[number] = texts.front();
        if (!files.empty() && !look()) return false;
        for (const auto& [number, texts] : files) {
            for (const auto& text : texts) {
                cut.contents[number] = text;
                if (!look()) return false;
            }
            cut.contents[number] = texts.front();
        }
    }
    return true;
}

}  // namespace muster::test
