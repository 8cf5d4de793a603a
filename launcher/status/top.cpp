#include "launcher/status/top.h"

#include <algorithm>

#include "rendezvous/base/text/printable.h"

namespace muster::launcher {

namespace {

constexpr std::size_t filter_bytes_max = 64;

char lower(char one) {
    return one >= 'A' && one <= 'Z' ? static_cast<char>(one - 'A' + 'a') : one;
}

/// Without regard to the case of ASCII letters.
bool contains(std::string_view text, std::string_view part) {
    const auto same = [](char a, char b) { return lower(a) == lower(b); };
    return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end() || part.empty();
}

}  // namespace

Top::Top(std::string daemon, std::string job, Instant now)
    : daemon_(std::move(daemon)), status_(now), job_(printable_line(job)) {}

void Top::take(Result<std::string> answer, Instant now) {
    if (selection_) selected_row_ = selected(rows());  // If it goes, what stands in its place is selected.
    const bool answers = answer.has_value();
    status_.take(std::move(answer), now);
    if (!answers || !status_.trouble.empty()) return;
    const auto& facts = status_.reader.facts();
    for (const auto& job : facts.jobs) rates_[job.id].note(job.step, now);
    std::erase_if(rates_, [&](const auto& rate) { return !find_job(facts, rate.first); });
}

const StatusJob* Top::shown_job() const {
    const auto& facts = status_.reader.facts();
    if (!job_.empty()) return find_job(facts, job_);
    return facts.jobs.size() == 1 && !shows_list_ ? &facts.jobs[0] : nullptr;
}

const StatusNode* Top::shown_node(const StatusJob& job) const {
    const auto found = std::ranges::find_if(
        job.nodes, [this](const auto& node) { return node.host == node_->text && node.pid == node_->pid; });
    return found == job.nodes.end() ? nullptr : &*found;
}

bool Top::Rows::is(std::size_t row, const Name& name) const {
    if (row < jobs.size()) return jobs[row]->id == name.text;
    const auto& node = *nodes[row - jobs.size()];
    return node.pid == name.pid && node.host == name.text;
}

Top::Name Top::Rows::name(std::size_t row) const {
    if (row < jobs.size()) return {.text = jobs[row]->id};
    const auto& node = *nodes[row - jobs.size()];
    return {.text = node.host, .pid = node.pid};
}

Top::Rows Top::rows() const {
    Rows rows;
    const auto* const job = shown_job();
    if (job == nullptr) {
        for (const auto& one : status_.reader.facts().jobs)
            if (contains(one.id, filter_)) rows.jobs.push_back(&one);
        std::ranges::stable_partition(rows.jobs, [](const auto* one) { return has_trouble(*one); });
        rows.all_count = status_.reader.facts().jobs.size();
    } else if (!node_) {
        rows.nodes = worst_first(job->nodes);
        rows.all_count = rows.nodes.size();
        if (!filter_.empty())
            std::erase_if(rows.nodes, [this](const auto* node) {
                return !contains(node->host, filter_) && !contains(node->place, filter_);
            });
        if (order_ == Order::rank) std::ranges::stable_sort(rows.nodes, {}, &StatusNode::rank_base);
        if (order_ == Order::host) std::ranges::stable_sort(rows.nodes, {}, &StatusNode::host);
        if (order_ == Order::heard) std::ranges::stable_sort(rows.nodes, std::greater<>(), &StatusNode::silent_ms);
    }
    if (is_reversed_) {
        std::ranges::reverse(rows.jobs);
        std::ranges::reverse(rows.nodes);
    }
    return rows;
}

std::size_t Top::selected(const Rows& rows) const {
    if (rows.size() == 0 || !selection_) return 0;
    const auto at = std::min(selected_row_, rows.size() - 1);
    if (rows.is(at, *selection_)) return at;
    for (std::size_t row = 0; row < rows.size(); ++row)
        if (rows.is(row, *selection_)) return row;
    return at;
}

void Top::select(const Rows& rows, std::size_t row) {
    if (rows.size() == 0) return;
    selected_row_ = std::min(row, rows.size() - 1);
    selection_ = rows.name(selected_row_);
}

void Top::open() {
    const auto rows = this->rows();
    if (rows.size() == 0) return;
    auto name = rows.name(selected(rows));
    if (rows.jobs.empty())
        node_ = std::move(name);
    else
        job_ = std::move(name.text);
    if (!node_) selection_.reset();
    filter_.clear();
}

void Top::back() {
    if (node_) {
        node_.reset();  // The selection is still on it.
    } else if (!filter_.empty()) {
        filter_.clear();
    } else if (shown_job() != nullptr) {
        selection_ = Name{.text = shown_job()->id};
        job_.clear();
        shows_list_ = true;
    }
}

/// Of the selected job; of the node that is selected or shown.
void Top::ask_for(std::vector<std::string> command) {
    const auto rows = this->rows();
    const auto* const job = shown_job();
    if (rows.size() == 0 && (job == nullptr || !filter_.empty())) return;
    const auto node = node_ || job == nullptr || rows.size() == 0 ? node_ : rows.name(selected(rows));
    // A name may begin with '-', and be that of a folder here.
    command_ = std::move(command);
    command_.push_back(cat("--job=", job == nullptr ? rows.name(selected(rows)).text : job->id));
    if (node) command_.push_back(cat("--node=", node->text));
}

bool Top::press_in_filter(const Key& key) {
    switch (key.kind) {
        case KeyKind::character:
            if (filter_.size() + key.text.size() <= filter_bytes_max) filter_ += key.text;
            break;
        case KeyKind::backspace: filter_ = front_of(filter_, filter_.empty() ? 0 : filter_.size() - 1); break;
        case KeyKind::escape: filter_.clear(); [[fallthrough]];
        default: types_filter_ = false;
    }
    return true;
}

bool Top::press_character(const std::string& text) {
    if (text == "q") return false;
    if (text == "?" || text == "h") shows_help_ = true;
    if (text == "l") ask_for({"logs", "--follow", "--last=200"});
    if (text == "p" && shown_job() != nullptr) ask_for({"logs", "--stacks"});
    if (text == "e") ask_for({"status", "--events"});
    if (text == "/") types_filter_ = !node_;
    if (text == "s" && shown_job() != nullptr) order_ = static_cast<Order>((static_cast<int>(order_) + 1) % 4);
    if (text == "r") is_reversed_ = !is_reversed_;
    return true;
}

bool Top::press(const Key& key, StatusSize size, Instant now) {
    if (shows_help_) {
        shows_help_ = false;
        return true;
    }
    if (types_filter_) return press_in_filter(key);
    const auto rows = this->rows();
    const auto row = selected(rows);
    const auto page = std::max<std::size_t>(layout(size, rows, now).table_rows, 1);
    const auto is = [&key](std::string_view character) { return key.text == character; };
    if (key.kind == KeyKind::enter) {
        open();
    } else if (key.kind == KeyKind::escape) {
        back();
    } else if (key.kind == KeyKind::up || is("k")) {
        select(rows, row - std::min<std::size_t>(row, 1));
    } else if (key.kind == KeyKind::down || is("j")) {
        select(rows, row + 1);
    } else if (key.kind == KeyKind::page_up) {
        select(rows, row - std::min(row, page));
    } else if (key.kind == KeyKind::page_down || is(" ")) {
        select(rows, row + page);
    } else if (key.kind == KeyKind::home || is("g")) {
        select(rows, 0);
    } else if (key.kind == KeyKind::end || is("G")) {
        select(rows, rows.size());
    } else if (key.kind == KeyKind::character) {
        return press_character(key.text);
    }
    return true;
}

}  // namespace muster::launcher
