#include "agent/output/log_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/output/log_index_search.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace {

constexpr std::size_t chunk_bytes = 16 << 10;  // times two thousand files
constexpr std::size_t index_line_max = 1024;
constexpr std::size_t heading_bytes_max = 128;

/// A pipe or a device in the place of a file could hold its reader for ever. Invalid with an errno.
FileDescriptor open_regular(const std::string& path) {
    FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat facts {};
    if (!file.valid() || ::fstat(file.get(), &facts) != 0) return {};
    if (S_ISREG(facts.st_mode)) return file;
    errno = EINVAL;
    return {};
}

/// A worker's own line that looks like one does no harm where headings are only passed over.
bool begins_with_heading(std::string_view text) {
    text = text.substr(0, std::min(text.find('\n'), heading_bytes_max));
    return text.find(log_heading) != std::string_view::npos;
}

}  // namespace

Result<LogReader> LogReader::open(const std::string& path, LogOwner owner) {
    auto file = open_regular(path);
    if (!file.valid()) return error_from_errno(errno, cat("read ", path));
    return LogReader(std::move(file), log_index_path(path), std::move(owner));
}

LogReader::LogReader(FileDescriptor file, std::string index_path, LogOwner owner)
    : file_(std::move(file)),
      index_path_(std::move(index_path)),
      index_(open_regular(index_path_)),
      owner_(std::make_shared<const LogOwner>(std::move(owner))) {}

void LogReader::skip_to(std::int64_t time_ns) {
    pass_while([time_ns](const LogMark& mark) { return mark.time_ns < time_ns; });
    if (!marks_.empty()) position_ = marks_.front().offset;
}

void LogReader::skip_to_round(std::uint64_t round) {
    pass_while([this, round](const LogMark& mark) { return (mark.owner ? *mark.owner : *owner_).round < round; });
    // A kept worker may end in this round the line that it began in the one before.
    if (!marks_.empty()) position_ = line_begin(marks_.front().offset);
}

void LogReader::skip_to_last(std::size_t lines, const std::function<void()>& alive) {
    std::string piece(chunk_bytes + heading_bytes_max, '\0');
    const auto end = ::lseek(file_.get(), 0, SEEK_END);
    for (auto from = end; from > 0;) {
        if (alive) alive();
        const auto size = std::min<off_t>(from, static_cast<off_t>(chunk_bytes));
        from -= size;
        // A heading that begins in the piece may end behind it.
        const auto got = ::pread(file_.get(), piece.data(), static_cast<std::size_t>(size) + heading_bytes_max, from);
        if (got < size) return;
        const auto text = std::string_view(piece).substr(0, static_cast<std::size_t>(got));
        for (auto at = static_cast<std::size_t>(size); at-- > 0;) {
            if (text[at] != '\n' || begins_with_heading(text.substr(at + 1))) continue;
            if (lines-- == 0) return resume_at(static_cast<std::uint64_t>(from) + at + 1);
        }
        if (static_cast<std::uint64_t>(end - from) < last_bytes_max) continue;
        const auto line_end = text.find('\n');
        return resume_at(static_cast<std::uint64_t>(from) + (line_end == std::string_view::npos ? 0 : line_end + 1));
    }
}

void LogReader::resume_at(std::uint64_t offset) {
    pass_while([offset](const LogMark& mark) { return mark.offset < offset; });
    // An end of two bytes, or half a line that was taken: its worker was killed, and the next heading ends the line.
    char before = '\n';
    if (offset > 0 && ::pread(file_.get(), &before, 1, static_cast<off_t>(offset - 1)) == 1 && before != '\n')
        splitter_.begin_behind_line();
    position_ = std::max(position_, offset);
    seen_end_ = position_;
}

Result<bool> LogReader::next(LogLine& line) {
    for (;;) {
        if (std::string_view text; splitter_.next(text)) {
            fill_in(line, text);
            line.is_bar = splitter_.ended_with_return();
            return true;
        }
        const auto filled = fill();
        if (!filled || !*filled) return filled;
    }
}

bool LogReader::take_rest(LogLine& line) {
    if (!splitter_.holds_partial()) return false;
    fill_in(line, splitter_.take_partial());
    line.is_bar = false;
    return true;
}

void LogReader::fill_in(LogLine& line, std::string_view text) const {
    line.text = text;
    line.time_ns = time_ns_;
    line.owner = owner_;
    line.cut_bytes = cut_bytes_;
    line.end = position_ - splitter_.unread_bytes();
}

/// Reads up to the next mark, so that all lines of a chunk have one time.
Result<bool> LogReader::fill() {
    pass_marks();
    if (marks_.empty()) {
        read_index();
        pass_marks();
    }
    const auto until = marks_.empty() ? std::uint64_t{chunk_bytes} : marks_.front().offset - position_;
    chunk_.resize(std::min<std::uint64_t>(chunk_bytes, until));
    const auto size = ::pread(file_.get(), chunk_.data(), chunk_.size(), static_cast<off_t>(position_));
    if (size < 0) return error_from_errno(errno, "read a log file");
    chunk_.resize(static_cast<std::size_t>(size));
    if (marks_.empty() && !chunk_.empty()) {
        // A mark is written before what it marks, so this has all of the chunk.
        read_index();
        if (!marks_.empty() && marks_.front().offset == position_) return fill();
        if (!marks_.empty()) chunk_.resize(std::min<std::uint64_t>(chunk_.size(), marks_.front().offset - position_));
    }
    if (struct stat facts{}; (chunk_.empty() || was_cut()) && ::fstat(file_.get(), &facts) == 0) {
        const auto written_ns = facts.st_mtim.tv_sec * 1'000'000'000 + facts.st_mtim.tv_nsec;
        if (was_cut()) time_ns_ = std::max(time_ns_, written_ns);
        const auto file_end = static_cast<std::uint64_t>(facts.st_size);
        // On a shared file system the size may be one from before the index was written, and the time with it. A file
        // has the time of the kernel's last tick, a mark the exact one.
        constexpr std::int64_t ticks_ns = 20'000'000;
        if (file_end < seen_end_ || (file_end < marked_ && written_ns + ticks_ns >= time_ns_)) {
            begin_again(file_end, written_ns);
            return fill();
        }
    }
    position_ += chunk_.size();
    if (!chunk_.empty()) seen_end_ = position_;
    if (!chunk_.empty()) splitter_.add(chunk_);
    return !chunk_.empty();
}

void LogReader::begin_again(std::uint64_t file_bytes, std::int64_t time_ns) {
    cut_bytes_ = file_bytes;
    splitter_ = LineSplitter();
    index_ = {};
    marks_.clear();
    position_ = seen_end_ = marked_ = 0;
    time_ns_ = std::max(time_ns_, time_ns);
}

void LogReader::read_index() {
    // A file that was just made may have been empty and without its index, which is there before the first byte.
    if (!index_.valid() && position_ == 0 && !was_cut()) index_ = open_regular(index_path_);
    if (!index_.valid()) return;
    char bytes[4096];
    for (ssize_t size = 0;
         (size = ::pread(index_.get(), bytes, sizeof bytes, static_cast<off_t>(index_position_))) > 0;) {
        index_position_ += static_cast<std::uint64_t>(size);
        index_rest_.append(bytes, static_cast<std::size_t>(size));
        for (std::size_t end = 0; (end = index_rest_.find('\n')) != std::string::npos;) {
            auto mark = to_mark(std::string_view(index_rest_).substr(0, end));
            index_rest_.erase(0, end + 1);
            if (mark && mark->offset >= position_ && (marks_.empty() || mark->offset >= marks_.back().begin))
                marks_.push_back(std::move(*mark));
            else if (mark && mark->owner && marks_.empty())  // It came between a look at the index and one at the file.
                owner_ = std::make_shared<const LogOwner>(std::move(*mark->owner));
        }
        if (index_rest_.size() > index_line_max) index_rest_.clear();  // damaged
        if (marks_.size() > 1000) return;                              // the rest when these have been passed
    }
}

std::uint64_t LogReader::line_begin(std::uint64_t offset) const {
    std::string piece(chunk_bytes, '\0');
    for (auto from = offset; from > 0 && offset - from < last_bytes_max;) {
        const auto size = std::min<std::uint64_t>(from, chunk_bytes);
        from -= size;
        if (::pread(file_.get(), piece.data(), size, static_cast<off_t>(from)) != static_cast<ssize_t>(size)) break;
        const auto at = std::string_view(piece).substr(0, size).rfind('\n');
        if (at != std::string_view::npos) return from + at + 1;
        if (from == 0) return 0;
    }
    return offset;
}

void LogReader::pass_while(const std::function<bool(const LogMark&)>& is_before) {
    if (index_.valid()) index_position_ = find_owner_before(index_.get(), is_before);
    for (bool passed = true; passed;) {
        passed = false;
        read_index();
        for (; !marks_.empty() && is_before(marks_.front()); passed = true) pass_mark();
    }
}

void LogReader::pass_marks() {
    while (!marks_.empty() && marks_.front().offset <= position_) pass_mark();
}

void LogReader::pass_mark() {
    auto& mark = marks_.front();
    marked_ = mark.offset;
    position_ = std::max(position_, mark.begin);
    time_ns_ = mark.time_ns;
    // The same owner is named again and again.
    if (mark.owner && *mark.owner != *owner_) owner_ = std::make_shared<const LogOwner>(std::move(*mark.owner));
    marks_.pop_front();
}

std::uint64_t last_round(const std::string& path) {
    const auto index = open_regular(path);
    const auto mark = index.valid() ? last_owner_mark(index.get(), static_cast<std::uint64_t>(std::max<off_t>(
                                                                       ::lseek(index.get(), 0, SEEK_END), 0)))
                                    : std::nullopt;
    return mark ? mark->owner->round : 0;
}

}  // namespace muster::agent
