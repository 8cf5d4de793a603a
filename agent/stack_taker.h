// Runs muster-stacks (agent/stacks) for workers that hang. It never holds up the agent: what is not known within a
// second and a half is left out, and the one that looks is killed.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster::agent {

class StackTaker {
  public:
    static constexpr Duration limit = 1500ms;

    /// `program` is muster-stacks, or what a test has in its place. `loop` outlives it.
    StackTaker(boost::asio::io_context& loop, std::string program);
    ~StackTaker();
    StackTaker(const StackTaker&) = delete;
    StackTaker& operator=(const StackTaker&) = delete;

    /// What it has said when it ended or at the limit (core/stack_text.h reads it), or a line that says why it could
    /// not be started. Comes from the loop, never from within take().
    using Done = std::function<void(std::string)>;
    void take(std::int32_t pid, Done done);
    /// Nobody waits any more: those that run are ended, and no Done is called.
    void drop_all();

  private:
    class Run;
    boost::asio::io_context& loop_;
    std::string program_;
    std::vector<std::weak_ptr<Run>> runs_;  // a run keeps itself until its process has ended
};

}  // namespace muster::agent
