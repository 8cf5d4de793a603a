#include "launcher/host/node_doctor.h"

#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <utility>

#include "launcher/host/ending_signals.h"
#include "rendezvous/base/system/config_text.h"
#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster::launcher {

/// A look that was killed ends at once, unless it hangs in the kernel. A busy node needs some time for it.
static constexpr Duration look_end_limit = 2s;

Result<std::string> read_limits_file(const std::string& path) {
    auto text = read_config_file(path);
    if (!text) return text;
    const auto parsed = agent::parse_limits(*text);
    if (!parsed) return Error{parsed.error().code, cat(path, ": ", parsed.error().context)};
    return text;
}

agent::DoctorFacts look_at_node(const DoctorOrder& order, const Environment& environment) {
    boost::asio::io_context loop{1};
    agent::NodeLooks looks(loop);
    agent::DoctorFacts facts;
    bool is_done = false;
    // Looks lead process groups of their own. A tool of the driver's, or a test on the GPUs, would run on.
    int stopped_by = 0;
    boost::asio::signal_set stops(loop);
    const auto ending = ending_signals();
    for (const auto& signal : ending) stops.add(signal.number);
    stops.async_wait([&](const boost::system::error_code& cancelled, int signal) {
        if (cancelled) return;
        looks.drop();
        stopped_by = signal;
        is_done = true;
    });
    looks.start({.directories = order.directories,
                 .skip = order.skip,
                 .limits = order.limits,
                 .environment = environment,
                 .gpu_tests = order.gpu_tests},
                [&](agent::DoctorFacts found) {
                    facts = std::move(found);
                    is_done = true;
                });
    while (!is_done) loop.run_one();
    stops.cancel();
    stops.clear();
    for (const auto& signal : ending) ::sigaction(signal.number, &signal.action, nullptr);  // they end it again
    if (stopped_by != 0) ::raise(stopped_by);
    loop.run_for(look_end_limit);
    return facts;
}

}  // namespace muster::launcher
