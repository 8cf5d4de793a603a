#include "agent/evidence/torch_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <fstream>
#include <string_view>
#include <utility>

#include "rendezvous/base/call_later.h"
#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace asio = boost::asio;
using asio::local::stream_protocol;

namespace {

/// Without stacks: a recorder of 2000 entries writes about 1 MiB.
constexpr std::size_t answer_bytes_max = std::size_t{64} << 20;
constexpr std::string_view request =
    "POST /handler/fr_trace_json HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

}  // namespace

class TorchServer::Question : public std::enable_shared_from_this<Question> {
  public:
    Question(asio::io_context& loop, std::int32_t rank, std::string file, Done done)
        : socket_(loop), late_(loop), rank_(rank), file_(std::move(file)), done_(std::move(done)) {}

    void start(const std::string& path) {
        // By its directory's descriptor: log directories may be deeper than the 107 bytes of a socket's address.
        const auto slash = path.rfind('/');
        const FileDescriptor directory(::open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (!directory.valid()) return;
        const auto near = cat("/proc/self/fd/", directory.get(), path.substr(slash));
        boost::system::error_code failure;
        // On one host: it is there, or it is not. A full queue of connections counts as nobody.
        socket_.open(stream_protocol(), failure);
        if (!failure) socket_.non_blocking(true, failure);
        if (!failure) socket_.connect(stream_protocol::endpoint(near), failure);
        if (failure) return;
        call_after(late_, limit, [self = shared_from_this()] {
            self->finish(cat("did not answer within ", muster::describe(limit)));
        });
        asio::async_write(socket_, asio::buffer(request),
                          [self = shared_from_this()](boost::system::error_code broken, std::size_t) {
                              if (broken) return self->finish("closed the connection early");
                              self->read();
                          });
    }
    void drop() {
        done_ = nullptr;
        finish({});
    }

  private:
    void read() {
        asio::async_read(socket_, asio::dynamic_buffer(answer_, answer_bytes_max),
                         [self = shared_from_this()](boost::system::error_code, std::size_t) { self->take(); });
    }
    /// The other side closes after its answer, whose end is the end of the stream.
    void take() {
        const auto body = answer_.find("\r\n\r\n");
        const auto status = std::string_view(answer_).substr(0, answer_.find("\r\n"));
        if (body == std::string::npos || status.find(" 200") == std::string_view::npos)
            return finish(status.empty() ? "sent no answer" : cat("answered \"", status.substr(0, 100), '"'));
        const auto dump = std::string_view(answer_).substr(body + 4);
        std::ofstream out(file_, std::ios::binary | std::ios::trunc);
        if (!out.write(dump.data(), static_cast<std::streamsize>(dump.size())).flush()) {
            if (out.is_open()) ::unlink(file_.c_str());  // a full disk has a part of it
            return finish(cat("sent its record, which cannot be written to ", file_));
        }
        auto operation = torch_operation(dump);
        const auto where = operation ? cat("; it is ", operation->inside ? "inside " : "after ", operation->name) : "";
        finish(cat("sent its record: ", file_, where), std::move(operation));
    }
    void finish(const std::string& what, std::optional<TorchOperation> operation = std::nullopt) {
        late_.cancel();
        boost::system::error_code ignored;
        socket_.close(ignored);
        if (auto done = std::exchange(done_, nullptr))
            done({cat("torch's flight recorder of rank ", rank_, ' ', what), std::move(operation)});
    }

    stream_protocol::socket socket_;
    asio::steady_timer late_;
    std::int32_t rank_;
    std::string file_;
    std::string answer_;
    Done done_;
};

TorchServer::~TorchServer() {
    drop_all();
}

void TorchServer::ask(std::int32_t rank, const std::string& socket, std::string file, Done done) {
    std::erase_if(questions_, [](const auto& question) { return question.expired(); });
    const auto question = std::make_shared<Question>(loop_, rank, std::move(file), std::move(done));
    questions_.push_back(question);
    question->start(socket);
}

void TorchServer::drop_all() {
    for (const auto& question : std::exchange(questions_, {}))
        if (const auto asked = question.lock()) asked->drop();
}

}  // namespace muster::agent
