// The daemon whose status page a command shows.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "launcher/config/environment.h"
#include "launcher/status/http_get.h"
#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/secret/control_key.h"

namespace muster::launcher {

/// How a command asks other hosts: by TLS with each key of the job (the empty name: of the daemon itself), then in
/// clear text if there is no key, or with --insecure. At least one way. Errors: of the secret.
Result<std::vector<Way>> find_ways(const Environment& environment, std::string_view job,
                                   rendezvous::ControlKey (*key_of)(const rendezvous::JobKey&), bool insecure);

class StatusSource {
  public:
    /// `where` is a value of --rdzv-endpoint. Errors: invalid_argument for it; others: of the secret.
    static Result<StatusSource> find(std::string_view where, const Environment& environment, bool insecure);

    /// The /status page, or another one. Errors are sentences without the endpoint.
    Result<std::string> ask(Duration limit, const std::string& target = "/status",
                            Interruption* interruption = nullptr) const;
    [[nodiscard]] std::string name() const { return describe(endpoint_); }

  private:
    explicit StatusSource(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

    Endpoint endpoint_;
    std::vector<Way> ways_;
    /// The way that was accepted last: a daemon logs each key that it does not accept. Polls have threads of their own.
    std::shared_ptr<std::atomic<std::size_t>> accepted_ = std::make_shared<std::atomic<std::size_t>>(0);
};

/// Asks for the page again and again on a thread of its own, so that a daemon that does not answer stops no screen.
class StatusPoll {
  public:
    /// Where the system gives no thread, the only answer is that error.
    StatusPoll(const StatusSource& source, Duration interval, std::string target = "/status");
    /// Ends a question that waits for its answer. A look-up of the daemon's name, or of its reachable address, may
    /// delay it by 2 s.
    ~StatusPoll();
    StatusPoll& operator=(StatusPoll&&) = delete;

    /// From now on, also for the question that is next.
    void set_interval(Duration interval);
    /// Can be read while there is an answer.
    [[nodiscard]] int descriptor() const { return news_.get(); }
    /// The newest answer that was not taken yet.
    std::optional<Result<std::string>> take();

  private:
    void run();
    /// With the mutex held, or without the thread.
    void tell(Result<std::string> answer);

    const StatusSource& source_;
    Duration interval_;
    const std::string target_;
    Interruption interruption_;
    FileDescriptor news_;
    std::mutex mutex_;
    std::condition_variable ended_;
    bool is_ending_ = false;
    std::optional<Result<std::string>> answer_;
    std::thread thread_;  ///< It uses the others.
};

}  // namespace muster::launcher
