#include "agent/evidence/torch_server.h"

#include <fcntl.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "rendezvous/base/file_descriptor.h"
#include "rendezvous/base/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/scratch_folder.h"

using namespace muster;
using namespace muster::agent;
using boost::asio::local::stream_protocol;

namespace {

/// A worker's server that gives one answer.
struct Server {
    explicit Server(std::string words) : answer(std::move(words)) {
        acceptor.async_accept([this](boost::system::error_code failure, stream_protocol::socket socket) {
            if (failure) return;  // closed before anybody came
            peer = std::make_unique<stream_protocol::socket>(std::move(socket));
            boost::asio::async_read_until(*peer, request, "\r\n\r\n", [this](auto, std::size_t) {
                boost::asio::write(*peer, boost::asio::buffer(answer));
                peer.reset();
            });
        });
    }
    static FileDescriptor make(const std::string& path) {
        std::filesystem::create_directory(path);
        return FileDescriptor(::open(path.c_str(), O_PATH));
    }
    /// The line that came of it.
    std::string ask() {
        TorchServer asks(loop);
        asks.ask(3, path, file, [this](const TorchServer::Answer& said) { told = said; });
        loop.run();
        return told.line;
    }

    boost::asio::io_context loop;
    test::ScratchFolder folder;
    // A log directory deeper than the address of a socket may be long.
    std::string deep = folder / std::string(120, 'x');
    std::string path = deep + "/torch.sock";
    std::string file = folder / "dump.json";
    FileDescriptor directory = make(deep);
    stream_protocol::acceptor acceptor{loop, cat("/proc/self/fd/", directory.get(), "/torch.sock")};
    std::unique_ptr<stream_protocol::socket> peer;
    boost::asio::streambuf request;
    std::string answer;
    TorchServer::Answer told;
};

}  // namespace

TEST_CASE("torch's flight recorder is asked over the worker's socket, and its dump is kept and told") {
    const std::string dump = R"({"entries":[{"record_id":4,"collective_seq_id":5,"profiling_name":"gloo:all_reduce",
                                 "process_group":["0","default_pg"],"state":"started"}]})";
    Server server("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + dump);
    CHECK(server.ask() == "torch's flight recorder of rank 3 sent its record: " + server.file +
                              "; it is inside gloo:all_reduce 5 of default_pg");
    REQUIRE(server.told.operation);
    CHECK(server.told.operation->inside);
    std::ostringstream kept;
    kept << std::ifstream(server.file).rdbuf();
    CHECK(kept.str() == dump);
    std::ostringstream asked;
    asked << &server.request;
    CHECK(asked.str().starts_with("POST /handler/fr_trace_json HTTP/1.0\r\n"));
}

TEST_CASE("of a dump that does not fit on the disk nothing stays, and that is told") {
    Server server("HTTP/1.1 200 OK\r\n\r\n{\"entries\":[" + std::string(100'000, ' ') + "]}");
    {
        const test::FileSizeLimit full(1000);
        server.ask();
    }
    CHECK(server.told.line ==
          "torch's flight recorder of rank 3 sent its record, which cannot be written to " + server.file);
    CHECK_FALSE(std::filesystem::exists(server.file));
}

TEST_CASE("a worker's server that cannot tell is told of, and one that is not there is not") {
    CHECK(Server("HTTP/1.1 404 Not Found\r\n\r\n").ask() ==
          "torch's flight recorder of rank 3 answered \"HTTP/1.1 404 Not Found\"");
    CHECK(Server("").ask() == "torch's flight recorder of rank 3 sent no answer");
    Server gone("x");
    gone.acceptor.close();
    CHECK(gone.ask().empty());
}

TEST_CASE("nobody is called when the question is dropped, or waits for ever") {
    boost::asio::io_context loop;
    const test::ScratchFolder folder;
    stream_protocol::acceptor mute(loop, stream_protocol::endpoint(folder / "torch.sock"));
    bool called = false;
    {
        TorchServer asks(loop);
        asks.ask(0, folder / "torch.sock", folder / "dump.json",
                 [&called](const TorchServer::Answer&) { called = true; });
    }
    loop.run();
    CHECK_FALSE(called);
}
