#include "launcher/host/program_output.h"

#include <boost/asio/io_context.hpp>
#include <utility>

#include "agent/process/side_runs.h"

namespace muster::launcher {

namespace {

constexpr Duration output_check_interval = 20ms;
constexpr Duration reap_limit = 1s;  // one that hangs in the kernel does not end when it is killed

}  // namespace

std::optional<std::string> program_output(std::vector<std::string> words, Duration limit,
                                          const std::function<bool()>& is_stopping, std::string_view input) {
    boost::asio::io_context loop{1};
    agent::SideRuns runs(loop);
    std::optional<std::string> said;
    runs.start(
        std::move(words), limit, [&said](std::string text) { said = std::move(text); }, input);
    while (!said && !is_stopping()) loop.run_one_for(output_check_interval);
    runs.drop_all();
    loop.run_for(reap_limit);
    return said;
}

}  // namespace muster::launcher
