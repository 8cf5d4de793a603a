#include "rendezvous/musterd/daemon_events.h"

#include <chrono>
#include <random>
#include <utility>

#include "rendezvous/base/log_listener.h"
#include "rendezvous/base/text/text.h"

namespace muster::rendezvous {

Result<std::unique_ptr<DaemonEvents>> DaemonEvents::open(const std::string& directory) {
    std::unique_ptr<EventFile> file;
    if (!directory.empty()) file = MUSTER_TRY(EventFile::open_in(directory, EventFile::daemon_rotation));
    return std::unique_ptr<DaemonEvents>(new DaemonEvents(std::move(file)));
}

DaemonEvents::DaemonEvents(std::unique_ptr<EventFile> file)
    : file_(std::move(file)), stream_(cat(std::random_device{}())) {
    if (file_) set_log_listener([this](std::string_view line) { tell(EventKind::daemon_note, line); });
}

DaemonEvents::~DaemonEvents() {
    if (file_) set_log_listener({});
}

EventSink DaemonEvents::sink() const {
    if (!file_) return {};
    return [file = file_.get()](std::string_view line) { file->add(line); };
}

void DaemonEvents::tell(EventKind kind, std::string_view text) {
    if (!file_) return;
    const std::lock_guard lock(mutex_);
    file_->add(event_line({.kind = kind, .text = std::string(text)},
                          {.stream = stream_,
                           .sequence = ++sequence_,
                           .since_1970 = std::chrono::system_clock::now().time_since_epoch()}));
}

}  // namespace muster::rendezvous
