// Requests a dump of torch's flight recorder (gloo and others) from the debug server that a worker runs in a thread
// (torch_hook.h): HTTP on a Unix socket. The server answers while the main thread hangs in a collective. A torch
// version without the handler answers with an error.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/diagnosis/torch_trace.h"
#include "rendezvous/base/time.h"

namespace muster::agent {

class TorchServer {
  public:
    static constexpr Duration limit = 5s;

    /// `loop` outlives it.
    explicit TorchServer(boost::asio::io_context& loop) : loop_(loop) {}
    ~TorchServer();
    TorchServer& operator=(TorchServer&&) = delete;

    struct Answer {
        std::string line;  ///< Text for the log.
        std::optional<TorchOperation> operation{};
    };
    /// Calls `done`, from the loop, once the dump lies in `file`, or when `limit` is over, or with words that say why
    /// there is none. Nothing comes where nobody listens at `socket`: the worker has not imported torch.
    using Done = std::function<void(const Answer&)>;
    void ask(std::int32_t rank, const std::string& socket, std::string file, Done done);
    /// Nobody waits any more.
    void drop_all();

  private:
    class Question;
    boost::asio::io_context& loop_;
    std::vector<std::weak_ptr<Question>> questions_;  // one keeps itself until it is answered
};

}  // namespace muster::agent
