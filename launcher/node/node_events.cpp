#include "launcher/node/node_events.h"

#include <unistd.h>

#include <chrono>
#include <random>

#include "rendezvous/base/log_listener.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

std::string_view backend_name(const LaunchConfig& config) {
    if (config.etcd) return "etcd";
    return config.backend == Backend::fixed ? "static" : "c10d";
}

/// As the log: a stderr that is not read delays nobody.
constexpr ConsoleWriter::Limits torch_limits{.buffer_max_bytes = 1 << 20, .patience = 0ns};

}  // namespace

Result<std::unique_ptr<NodeEvents>> NodeEvents::open(const LaunchConfig& config, const std::string& file,
                                                     const std::string& host) {
    std::unique_ptr<EventFile> opened;
    if (!file.empty()) {
        opened = MUSTER_TRY(EventFile::open(file));
    }
    return std::unique_ptr<NodeEvents>(new NodeEvents(config, std::move(opened), host));
}

NodeEvents::NodeEvents(const LaunchConfig& config, std::unique_ptr<EventFile> file, const std::string& host)
    : job_(shown_job(config)),
      file_(std::move(file)),
      stream_(cat(std::random_device{}()), host),
      torch_out_(STDERR_FILENO, "stderr", torch_limits) {
    if (config.torch_events)
        torch_ = std::make_unique<agent::TorchEvents>(
            agent::TorchEventContext{.run_id = job_,
                                     .role = config.role,
                                     .host = host,
                                     .backend = std::string(backend_name(config)),
                                     .entry = std::string(base_name(config.script))},
            std::chrono::steady_clock::now());
    if (file_)
        set_log_listener([this](std::string_view line) {
            constexpr std::string_view name = "muster: ";
            if (line.starts_with(name)) line.remove_prefix(name.size());
            take({.kind = EventKind::node_progress, .text = std::string(line)});
        });
}

NodeEvents::~NodeEvents() {
    set_log_listener({});
    torch_out_.flush(last_flush_max);
}

void NodeEvents::take(Event event) {
    const std::lock_guard lock(mutex_);
    event.job = job_;
    if (event.round == no_round) event.round = round_;
    round_ = event.round;
    if (torch_)
        for (const auto& line : torch_->take(event)) torch_out_.add(line);
    if (file_) file_->add(stream_.add(event, std::chrono::system_clock::now().time_since_epoch()));
}

void NodeEvents::ended(bool succeeded, const std::string& outcome, const std::string& text) {
    Event event{.kind = EventKind::job_ended, .text = text.empty() ? cat("job '", job_, "' ", outcome) : text};
    event.facts.outcome = outcome;
    set_log_listener({});
    take(std::move(event));
    if (!torch_) return;
    for (const auto& line : torch_->end(succeeded, text, std::chrono::steady_clock::now())) torch_out_.add(line);
}

rendezvous::EventSink NodeEvents::daemon_sink() const {
    if (!file_) return {};
    return [file = file_.get()](std::string_view line) { file->add(line); };
}

}  // namespace muster::launcher
