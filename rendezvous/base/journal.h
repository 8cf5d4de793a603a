// Logs to systemd's journal if stderr is the journal: records with fields, by the journal's native protocol (one
// datagram per record, https://systemd.io/JOURNAL_NATIVE_PROTOCOL). Otherwise the functions here do nothing.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/time.h"

namespace muster {

/// syslog's numbers, which the journal keeps.
enum class JournalPriority { error = 3, warning = 4, notice = 5, info = 6, debug = 7 };

/// One field as the protocol writes it, with its newline: "NAME=value", or with a length where the value has several
/// lines. `name`: capitals, digits and '_'.
std::string journal_field(std::string_view name, std::string_view value);

/// True when `fd` is the stream that `journal_stream` ("DEVICE:INODE", $JOURNAL_STREAM) names.
bool is_journal_stream(std::string_view journal_stream, int fd);

/// True where lines need no time (log.h): `fd` is a terminal, which somebody watches, or the journal, which has its
/// own.
bool has_own_time(int fd);

/// Where stderr is the journal's: what is logged goes to the journal's socket from now on, as records of `program`
/// (SYSLOG_IDENTIFIER). `socket_path` is for tests. Once in a process, before it starts threads.
bool open_journal(std::string_view program, std::string_view journal_stream,
                  const std::string& socket_path = "/run/systemd/journal/socket");

/// False also in a child of the process that opened it: its descriptors may be somebody else's.
[[nodiscard]] bool journal_is_open();

/// A field of every record from now on, e.g. MUSTER_JOB; an empty value ends that. Thread-safe.
void set_journal_field(const std::string& name, const std::string& value);

/// Fields of the records that this thread writes while it lives.
class JournalScope {
  public:
    /// `fields`: of journal_field, one after the other.
    explicit JournalScope(std::string fields);
    ~JournalScope();
    JournalScope& operator=(JournalScope&&) = delete;
};

/// One record. Longer text than 128 KiB is cut, and says so. What the journal does not take waits, 1 MiB at most; then
/// the caller waits up to `patience` for room, and what still finds none is counted and told of later. Thread-safe.
void write_journal(JournalPriority priority, std::string_view text, std::string_view fields = {},
                   Duration patience = Duration::zero());

/// As write_log_on_thread (log.h): until then each record is sent at once.
void write_journal_on_thread();
/// True when all records have been read by the journal (or given up) before `limit`.
bool flush_journal(Duration limit);

}  // namespace muster
