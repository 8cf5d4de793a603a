#include "rendezvous/page/changing_rows.h"

#include <nlohmann/json.hpp>
#include <set>

#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

namespace {

/// Beyond it, a reader that is behind gets all rows.
constexpr std::size_t gone_max = 1'000;

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void ChangingRows::set(Rows rows) {
    std::set<std::string_view> kept;
    for (const auto& [key, text] : rows) kept.insert(key);
    std::vector<std::string> gone;
    for (const auto& [key, row] : rows_)
        if (!kept.contains(key)) gone.push_back(key);
    change(std::move(rows), gone);
}

void ChangingRows::change(Rows rows, const std::vector<std::string>& gone) {
    const auto next = version_ + 1;
    bool has_changed = version_ == 0;
    for (auto& [key, text] : rows) {
        auto& row = rows_[std::move(key)];
        if (row.text == text) continue;
        row = {.text = std::move(text), .changed = next};
        has_changed = true;
    }
    for (const auto& key : gone) {
        if (rows_.erase(key) == 0) continue;
        gone_.emplace_back(next, key);
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
