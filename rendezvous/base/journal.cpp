#include "rendezvous/base/journal.h"

#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/thread_start.h"

namespace muster {

namespace {

/// A datagram must fit into the socket's send buffer, 208 KiB by default.
constexpr std::size_t text_max_bytes = 128 << 10;
constexpr std::size_t waiting_max_bytes = 1 << 20;
/// Before there is a thread: how long a journal that takes nothing may hold up the start of the process.
constexpr timeval direct_max{.tv_sec = 1, .tv_usec = 0};

thread_local std::string scope_fields;

class Journal {
  public:
    Journal(FileDescriptor socket, std::string_view program)
        : socket_(std::move(socket)), opener_(::getpid()), program_(journal_field("SYSLOG_IDENTIFIER", program)) {}

    [[nodiscard]] bool is_ours() const { return ::getpid() == opener_; }
    void set_field(const std::string& name, const std::string& value);
    void write(JournalPriority priority, std::string_view text, std::string_view fields, Duration patience);
    void use_thread();
    bool flush(Duration limit);

  private:
    [[nodiscard]] bool all_read() const;
    [[nodiscard]] std::string record(JournalPriority priority, std::string_view text, std::string_view fields) const;
    void add(std::string record);
    void send_direct(const std::string& record);
    void run();

    const FileDescriptor socket_;
    const pid_t opener_;
    const std::string program_;

    std::mutex mutex_;
    std::condition_variable filled_;
    std::condition_variable drained_;
    std::map<std::string, std::string> fields_;  ///< Keyed by name, encoded for the protocol.
    std::deque<std::string> waiting_;
    std::size_t waiting_bytes_ = 0;
    std::uint64_t skipped_count_ = 0;
    bool sending_ = false;
    std::thread thread_;
};

// Never destroyed: a line may be logged from any destructor.
std::atomic<Journal*> journal{nullptr};

void Journal::set_field(const std::string& name, const std::string& value) {
    const std::lock_guard lock(mutex_);
    if (value.empty())
        fields_.erase(name);
    else
        fields_[name] = journal_field(name, value);
}

std::string Journal::record(JournalPriority priority, std::string_view text, std::string_view fields) const {
    std::string made = cat("PRIORITY=", static_cast<int>(priority), "\n", program_, scope_fields, fields);
    // What is said of this one record beats what holds for all.
    for (const auto& [name, field] : fields_)
        if (made.find(cat('\n', name, '=')) == std::string::npos) made += field;
    if (text.size() <= text_max_bytes) return made + journal_field("MESSAGE", text);
    return made + journal_field("MESSAGE", cat(text.substr(0, text_max_bytes), " ... (", text.size() - text_max_bytes,
                                               " more bytes)"));
}

void Journal::add(std::string record) {
    waiting_bytes_ += record.size();
    waiting_.push_back(std::move(record));
    filled_.notify_one();
}

void Journal::send_direct(const std::string& record) {
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &direct_max, sizeof direct_max);
    if (::send(socket_.get(), record.data(), record.size(), MSG_NOSIGNAL) < 0) ++skipped_count_;
}

void Journal::write(JournalPriority priority, std::string_view text, std::string_view fields, Duration patience) {
    std::unique_lock lock(mutex_);
    auto made = record(priority, text, fields);
    if (!thread_.joinable()) return send_direct(made);
    const auto has_room = [&] { return waiting_bytes_ + made.size() <= waiting_max_bytes; };
    // Who has had to drop something does not wait again until there is plenty of room.
    const bool dropping = skipped_count_ > 0 && waiting_bytes_ > waiting_max_bytes / 2;
    if (dropping || (!has_room() && !drained_.wait_for(lock, patience, has_room))) {
        ++skipped_count_;
        return;
    }
    if (const auto skipped = std::exchange(skipped_count_, 0); skipped > 0)
        add(record(JournalPriority::warning, cat("... ", skipped, skipped == 1 ? " line" : " lines", " skipped"), {}));
    add(std::move(made));
}

void Journal::use_thread() {
    const std::lock_guard lock(mutex_);
    if (thread_.joinable()) return;
    constexpr timeval for_ever{};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &for_ever, sizeof for_ever);
    auto started = start_thread("muster-journal", [this] { run(); });
    if (started) thread_ = std::move(*started);
}

void Journal::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        sending_ = false;
        drained_.notify_all();
        filled_.wait(lock, [this] { return !waiting_.empty(); });
        const auto next = std::move(waiting_.front());
        waiting_.pop_front();
        waiting_bytes_ -= next.size();
        sending_ = true;
        lock.unlock();
        ssize_t sent = 0;
        do sent = ::send(socket_.get(), next.data(), next.size(), MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        lock.lock();
        if (sent < 0) ++skipped_count_;
    }
}

/// The journal looks up who has sent a record when it reads it, by the process's number: of a process that is gone by
/// then it knows no unit, and `journalctl -u` would not show why that unit has ended.
bool Journal::all_read() const {
    int bytes = 0;
    return ::ioctl(socket_.get(), SIOCOUTQ, &bytes) != 0 || bytes == 0;
}

bool Journal::flush(Duration limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    std::unique_lock lock(mutex_);
    const auto all_sent = [this] { return waiting_.empty() && !sending_; };
    if (thread_.joinable() && !drained_.wait_until(lock, deadline, all_sent)) return false;
    lock.unlock();
    while (!all_read()) {
        if (std::chrono::steady_clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the kernel tells nobody when a record is read
    }
    return true;
}

}  // namespace

std::string journal_field(std::string_view name, std::string_view value) {
    if (value.find('\n') == std::string_view::npos) return cat(name, '=', value, '\n');
    std::string field = cat(name, '\n');
    for (unsigned byte = 0; byte < 8; ++byte)  // the length, little-endian
        field.push_back(static_cast<char>(static_cast<std::uint64_t>(value.size()) >> (8 * byte) & 0xff));
    return field.append(value).append("\n");
}

bool is_journal_stream(std::string_view journal_stream, int fd) {
    const auto parts = split(journal_stream, ':');
    std::uint64_t device = 0, inode = 0;
    if (parts.size() != 2 || !parse_number(parts[0], device) || !parse_number(parts[1], inode)) return false;
    struct stat facts {};
    return ::fstat(fd, &facts) == 0 && facts.st_dev == device && facts.st_ino == inode;
}

bool has_own_time(int fd) {
    const char* const stream = std::getenv("JOURNAL_STREAM");
    return ::isatty(fd) == 1 || (stream != nullptr && is_journal_stream(stream, fd));
}

bool open_journal(std::string_view program, std::string_view journal_stream, const std::string& socket_path) {
    if (journal.load() != nullptr || !is_journal_stream(journal_stream, STDERR_FILENO)) return false;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (socket_path.size() >= sizeof address.sun_path) return false;
    socket_path.copy(address.sun_path, socket_path.size());
    FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket.valid() || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return false;
    journal = new Journal(std::move(socket), program);
    return true;
}

bool journal_is_open() {
    const auto* const open = journal.load();
    return open != nullptr && open->is_ours();
}

void set_journal_field(const std::string& name, const std::string& value) {
    if (auto* const open = journal.load()) open->set_field(name, value);
}

JournalScope::JournalScope(std::string fields) {
    scope_fields = std::move(fields);
}

JournalScope::~JournalScope() {
    scope_fields.clear();
}

void write_journal(JournalPriority priority, std::string_view text, std::string_view fields, Duration patience) {
    if (auto* const open = journal.load()) open->write(priority, text, fields, patience);
}

void write_journal_on_thread() {
    if (auto* const open = journal.load()) open->use_thread();
}

bool flush_journal(Duration limit) {
    auto* const open = journal.load();
    return open == nullptr || open->flush(limit);
}

}  // namespace muster
