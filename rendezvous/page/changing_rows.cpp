#include "rendezvous/page/changing_rows.h"

#include <nlohmann/json.hpp>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

/// Beyond it, a reader that is behind gets all rows.
constexpr std::size_t gone_max = 1'000;

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void ChangingRows::set(std::vector<std::pair<std::string, std::string>> rows) {
    const auto next = version_ + 1;
    bool has_changed = version_ == 0;
    ++sets_;
    for (auto& [key, text] : rows) {
        auto& row = rows_[std::move(key)];
        row.seen = sets_;
        if (row.text == text) continue;
        row.text = std::move(text);
        row.changed = next;
        has_changed = true;
    }
    for (auto at = rows_.begin(); at != rows_.end();) {
        if (at->second.seen == sets_) {
            ++at;
            continue;
        }
        gone_.emplace_back(next, at->first);
        at = rows_.erase(at);
        has_changed = true;
    }
    for (; gone_.size() > gone_max; gone_.pop_front()) whole_before_ = gone_.front().first;
    if (!has_changed) return;
    version_ = next;
    texts_.clear();
}

const std::string& ChangingRows::since(std::uint64_t version) {
    const auto [at, is_new] = texts_.try_emplace(version);
    auto& out = at->second;
    if (!is_new) return out;
    const bool is_whole = version < whole_before_;
    out = cat("{\"whole\":", is_whole, ",\"rows\":{");
    bool is_first = true;
    for (const auto& [key, row] : rows_) {
        if (!is_whole && row.changed <= version) continue;
        out += cat(is_first ? "" : ",", quoted(key), ":", row.text);
        is_first = false;
    }
    out += "},\"gone\":[";
    is_first = true;
    // A key that went and came back is among the rows.
    for (const auto& [changed, key] : gone_) {
        if (is_whole || changed <= version || rows_.contains(key)) continue;
        out += cat(is_first ? "" : ",", quoted(key));
        is_first = false;
    }
    out += "]}";
    return out;
}

}  // namespace muster::rendezvous
