#include "rendezvous/base/system/config_text.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster {

namespace {

constexpr std::size_t file_max_bytes = 1 << 20;
/// For a pipe, with which a shell names the output of a program: --config <(program).
constexpr Duration writer_max = 10s;

bool has_control_character(std::string_view line) {
    return std::any_of(line.begin(), line.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\t'; });
}

}  // namespace

ConfigText parse_config(std::string_view text) {
    ConfigText read;
    std::size_t number = 0;
    for (const auto raw : split(text, '\n')) {
        ++number;
        const auto line = trim(raw);
        if (line.empty() || line.front() == '#' || line.front() == ';') continue;
        const auto add_error = [&](std::string why) { read.complaints.push_back({number, std::move(why)}); };
        const auto equals = line.find('=');
        if (has_control_character(line)) {
            add_error("the line has a control character in it");
        } else if (equals == std::string_view::npos || trim(line.substr(0, equals)).empty()) {
            constexpr std::size_t shown_max = 60;
            add_error(cat("got '", line.substr(0, shown_max), "'; accepted is KEY = VALUE, or # before a comment"));
        } else {
            std::string key(trim(line.substr(0, equals)));
            std::replace(key.begin(), key.end(), '_', '-');
            read.entries.push_back({std::move(key), std::string(trim(line.substr(equals + 1))), number});
        }
    }
    return read;
}

namespace {

Error unreadable(const std::string& path, int error_number) {
    auto error = error_from_errno(error_number, cat("read ", path));
    if (error_number == ENOENT || error_number == ENOTDIR)
        error.context += "; the path is misspelt, or meant from another directory: write it absolute";
    else if (error_number == EISDIR)
        error.context += "; name the file in it";
    else if (error_number == ENXIO)
        error.context += "; it is a socket, or a device that is not there: name a file";
    else if (error_number == EACCES)
        error.context += cat("; it is not this user's (uid ", ::geteuid(), "): give it the right to read it (chmod)");
    return error;
}

/// Root runs what the file names, so nobody else may write it. Empty if so. A device such as /dev/null has no text of
/// another user's.
std::string reason_for_distrust(int file) {
    struct stat facts {};
    if (::geteuid() != 0 || ::fstat(file, &facts) != 0 || S_ISCHR(facts.st_mode)) return {};
    if (facts.st_uid != 0 && facts.st_uid != ::getuid())
        return cat("belongs to user ", facts.st_uid,
                   ", who is neither root nor the caller; check it and run chown root");
    if ((facts.st_mode & 0022) != 0) return "can be written by other users than its owner; check it and run chmod go-w";
    return {};
}

}  // namespace

Result<std::string> read_config_file(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!file.valid()) return unreadable(path, errno);
    if (const auto reason = reason_for_distrust(file.get()); !reason.empty())
        return Error{Errc::permission_denied,
                     cat("the configuration ", path, " is not read, because this process runs as root and the file ",
                         reason, " on it")};
    std::string text(file_max_bytes + 1, '\0');
    std::size_t size = 0;
    const auto deadline = std::chrono::steady_clock::now() + writer_max;
    while (size < text.size()) {
        // First, because a pipe that nobody has opened for writing yet reads as if it were empty.
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
        pollfd waited{file.get(), POLLIN, 0};
        if (::poll(&waited, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))) == 0)
            return Error{
                Errc::timed_out,
                cat("read ", path, ": no end within ", describe(writer_max),
                    "; its writer is slow, or nobody writes into this pipe: write the file first, then name it")};
        const auto got = ::read(file.get(), text.data() + size, text.size() - size);
        if (got < 0 && errno != EINTR && errno != EAGAIN) return unreadable(path, errno);
        if (got == 0) break;
        if (got > 0) size += static_cast<std::size_t>(got);
    }
    if (size > file_max_bytes)
        return Error{Errc::limit_exceeded, cat(path, " has more than ", file_max_bytes, " bytes: no configuration")};
    text.resize(size);
    return text;
}

std::optional<bool> config_flag(std::string_view value) {
    std::string lower(value);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower == "yes" || lower == "true" || lower == "on" || lower == "1") return true;
    if (lower == "no" || lower == "false" || lower == "off" || lower == "0") return false;
    return std::nullopt;
}

std::optional<std::vector<std::string>> split_words(std::string_view text) {
    std::vector<std::string> words;
    bool in_word = false;
    char quote = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        const bool blank = c == ' ' || c == '\t';
        if (quote == 0 && blank) {
            in_word = false;
            continue;
        }
        if (!in_word) words.emplace_back();
        in_word = true;
        const bool escapes = c == '\\' && quote != '\'';
        if (escapes && at + 1 == text.size()) return std::nullopt;
        // Within "..." a backslash is itself before anything but a quote or another one.
        if (escapes && (quote == 0 || text[at + 1] == '"' || text[at + 1] == '\\'))
            words.back().push_back(text[++at]);
        else if (quote == 0 && (c == '"' || c == '\''))
            quote = c;
        else if (c == quote)
            quote = 0;
        else
            words.back().push_back(c);
    }
    if (quote != 0) return std::nullopt;
    return words;
}

}  // namespace muster
