#include "agent/process/side_runs.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <utility>

#include "agent/process/side_process.h"
#include "rendezvous/base/call_later.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

namespace asio = boost::asio;

namespace {

constexpr std::size_t piece_bytes = 4096;

}  // namespace

class SideRuns::Run : public std::enable_shared_from_this<Run> {
  public:
    Run(asio::io_context& loop, SideProcess process, End end, Done done)
        : pid_(process.pid),
          end_signal_(end == End::by_sigterm ? SIGTERM : SIGKILL),
          ended_(loop, process.ended.release()),
          output_(loop, process.output.release()),
          late_(loop),
          done_(std::move(done)) {
        text_.reserve(2 * piece_bytes);
    }

    void start(Duration limit) {
        wait_for_output();
        call_after(late_, limit, [self = shared_from_this()] { self->finish(); });
        wait_for_end();
    }
    void drop() {
        done_ = nullptr;
        finish();
    }

  private:
    void wait_for_end() {
        call_when_readable(ended_, [self = shared_from_this()] {
            // A wake-up may be meant for an earlier descriptor of the same number.
            if (::waitpid(self->pid_, nullptr, WNOHANG) == 0) return self->wait_for_end();
            self->reaped_ = true;
            self->read();  // what it wrote last
            self->finish();
        });
    }
    void wait_for_output() {
        call_when_readable(output_, [self = shared_from_this()] {
            if (self->finished_) return;
            if (self->read())
                self->wait_for_output();
            else
                self->finish();
        });
    }
    /// False at the end, or where there is more than is wanted.
    bool read() {
        while (output_.is_open() && text_.size() < side_output_bytes_max) {
            // In place: what a program says may be a key, of which no copies shall stay behind.
            const auto had = text_.size();
            text_.resize(had + piece_bytes);
            const auto size = ::read(output_.native_handle(), text_.data() + had, piece_bytes);
            text_.resize(had + static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
            if (size < 0 && errno == EINTR) continue;
            if (size < 0) return errno == EAGAIN;
            if (size == 0) return false;
        }
        return false;
    }
    void finish() {
        if (std::exchange(finished_, true)) return;
        late_.cancel();
        if (!reaped_) ::kill(-pid_, end_signal_);  // with what it started: it leads a process group
        boost::system::error_code ignored;
        output_.close(ignored);
        if (auto done = std::exchange(done_, nullptr)) done(std::move(text_));
    }

    const pid_t pid_;
    const int end_signal_;
    asio::posix::stream_descriptor ended_;
    asio::posix::stream_descriptor output_;
    asio::steady_timer late_;
    Done done_;
    std::string text_;
    bool finished_ = false;
    bool reaped_ = false;
};

SideRuns::~SideRuns() {
    drop_all();
}

void SideRuns::start(std::vector<std::string> words, Duration limit, Done done, std::string_view input) {
    std::erase_if(runs_, [](const auto& run) { return run.expired(); });
    auto started = start_side_process(std::move(words), {}, input);
    if (!started) {
        auto told = [done = std::move(done), text = cat("note ", started.error().context, '\n')] { done(text); };
        asio::post(loop_, life_.guard(std::move(told)));
        return;
    }
    auto run = std::make_shared<Run>(loop_, std::move(*started), end_, std::move(done));
    runs_.push_back(run);
    run->start(limit);
}

void SideRuns::drop_all() {
    life_.end();
    for (const auto& weak : std::exchange(runs_, {}))
        if (const auto run = weak.lock()) run->drop();
}

}  // namespace muster::agent
