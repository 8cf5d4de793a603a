#include "agent/output/log_wire.h"

#include <algorithm>
#include <utility>

#include "agent/output/log_words.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::size_t head_bytes_max = 4096;

/// Messages that are one word.
const std::map<std::string_view, LogMessage>& bare_messages() {
    static const std::map<std::string_view, LogMessage> all{
        {"alive", LogAlive{}}, {"over", LogRoundOver{}}, {"end", LogEnd{}}};
    return all;
}

Error malformed() {
    return {Errc::bad_frame, "it sent lines that cannot be read; is it another version of muster?"};
}

}  // namespace

std::string to_wire(const LogMessage& message) {
    for (const auto& [word, bare] : bare_messages())
        if (bare.index() == message.index()) return cat(word, '\n');
    if (const auto* clock = std::get_if<LogClock>(&message)) return cat("clock ", clock->now_ns, '\n');
    if (const auto* reached = std::get_if<LogReached>(&message)) return cat("reached ", reached->time_ns, '\n');
    auto text = std::get<LogTrouble>(message).text.substr(0, head_bytes_max / 2);
    std::ranges::replace(text, '\n', ' ');
    return cat("trouble ", text, '\n');
}

void LineWriter::append(std::string& out, std::size_t file, const std::string& name, const LogLine& line) {
    auto& owner = owners_[file];
    if (!owner) out += cat("path ", file, " ", name, '\n');
    if (line.cut_bytes) {
        const auto [cut, is_first] = cuts_.try_emplace(file);
        if (std::exchange(cut->second, *line.cut_bytes) != *line.cut_bytes || is_first)
            out += cat("cut ", file, " ", *line.cut_bytes, '\n');
    }
    if (owner != line.owner) {
        owner = line.owner;
        out += cat("file ", file, " round ", owner->round, " rank ", owner->rank, " on ", owner->host, '\n');
    }
    out +=
        cat("line ", file, " at ", line.time_ns, " to ", line.end, line.is_bar ? " r " : " n ", line.text.size(), '\n');
    out += line.text;
    out += '\n';
}

void LogWireReader::append(std::string_view bytes) {
    bytes_.erase(0, std::exchange(from_, 0));
    bytes_ += bytes;
}

Result<std::optional<LogMessage>> LogWireReader::next() {
    for (;;) {
        const auto rest = std::string_view(bytes_).substr(from_);
        const auto end = rest.find('\n');
        if (end == std::string_view::npos) {
            if (rest.size() > head_bytes_max) return malformed();
            return std::optional<LogMessage>();
        }
        const auto head = rest.substr(0, end);
        auto words = head;
        if (head.starts_with("line ")) {
            auto read = read_line(head, end + 1);
            if (read && *read && !is_new(std::get<SentLine>(**read))) continue;
            return read;
        }
        std::optional<Result<void>> learned;
        if (head.starts_with("file ")) learned = read_owner(head);
        if (head.starts_with("path ")) learned = read_path(head);
        if (head.starts_with("cut ")) learned = read_cut(head);
        if (learned) {
            if (!*learned) return learned->error();
            drop(end + 1);
            continue;
        }
        std::optional<LogMessage> message;
        if (std::int64_t number = 0; take_number(words, "clock", number))
            message = LogClock{number};
        else if (take_number(words, "reached", number))
            message = LogReached{number};
        else if (head.starts_with("trouble "))
            message = LogTrouble{std::string(head.substr(8))};
        else if (const auto bare = bare_messages().find(head); bare != bare_messages().end())
            message = bare->second;
        else
            return malformed();
        drop(end + 1);
        return message;
    }
}

bool LogWireReader::is_new(const SentLine& sent) {
    const auto name = names_.find(sent.file);
    if (name == names_.end()) return true;
    const auto begin = std::exchange(ends_[sent.file], sent.line.end);
    if (const auto known = drops_.find(name->second); known != drops_.end()) {
        if (sent.line.end <= known->second) return false;
        // Half a line that was taken as a line, and that the next heading has ended: it has more than the one byte that
        // is new. One letter may also be a new half line. It is taken for one unless the line before ended right before
        // it, because filters leave lines out; only a left-out empty line between them would deceive this.
        const auto size = sent.line.text.size();
        const bool is_ended = sent.line.end == known->second + 1;
        if (is_ended && (size > 1 || (size == 1 && begin + 1 == known->second))) return false;
        drops_.erase(known);
    }
    positions_[name->second] = sent.line.end;
    return true;
}

Result<void> LogWireReader::read_path(std::string_view words) {
    std::size_t file = 0;
    if (!take_number(words, "path", file) || file >= files_max || words.empty()) return malformed();
    // Said once: else a sender's names would need memory without limit.
    return names_.try_emplace(file, words).second ? Result<void>() : malformed();
}

Result<void> LogWireReader::read_cut(std::string_view words) {
    std::size_t file = 0;
    std::uint64_t size = 0;
    if (!take_number(words, "cut", file) || !parse_number(words, size)) return malformed();
    const auto name = names_.find(file);
    const auto known = name == names_.end() ? drops_.end() : drops_.find(name->second);
    // Else the file was cut before the reader met it, and the reader knows it as it is.
    if (known != drops_.end() && known->second > size) drops_.erase(known);
    return {};
}

Result<void> LogWireReader::read_owner(std::string_view words) {
    std::size_t file = 0;
    LogOwner owner;
    if (!take_number(words, "file", file) || !take_number(words, "round", owner.round) ||
        !take_number(words, "rank", owner.rank) || !words.starts_with("on ") || file >= files_max)
        return malformed();
    owner.host = words.substr(3);
    owners_[file] = std::make_shared<const LogOwner>(std::move(owner));
    return {};
}

Result<std::optional<LogMessage>> LogWireReader::read_line(std::string_view head, std::size_t head_bytes) {
    SentLine sent;
    std::size_t size = 0;
    auto words = head;
    if (!take_number(words, "line", sent.file) || !take_number(words, "at", sent.line.time_ns) ||
        !take_number(words, "to", sent.line.end))
        return malformed();
    sent.line.is_bar = words.starts_with('r');
    const auto owner = owners_.find(sent.file);
    if (!take_number(words, sent.line.is_bar ? "r" : "n", size) || !words.empty() || size > line_bytes_max ||
        owner == owners_.end())
        return malformed();
    if (bytes_.size() - from_ < head_bytes + size + 1) return std::optional<LogMessage>();
    if (bytes_[from_ + head_bytes + size] != '\n') return malformed();
    sent.line.text = bytes_.substr(from_ + head_bytes, size);
    sent.line.owner = owner->second;
    drop(head_bytes + size + 1);
    return std::optional<LogMessage>(std::move(sent));
}

}  // namespace muster::agent
