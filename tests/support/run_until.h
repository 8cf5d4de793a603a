// Runs a loop of Asio until a condition holds.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>

namespace muster::test {

/// Within a minute, which shows a fault. Returns whether it holds then.
inline bool run_until(boost::asio::io_context& loop, const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done() && std::chrono::steady_clock::now() < deadline) {
        loop.restart();
        loop.run_one_for(std::chrono::milliseconds(20));
    }
    return done();
}

}  // namespace muster::test
