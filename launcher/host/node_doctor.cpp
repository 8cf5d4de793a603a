#include "launcher/host/node_doctor.h"

#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <utility>

#include "rendezvous/base/system/config_text.h"
#include "rendezvous/base/text/text.h"

namespace muster::launcher {

namespace {

bool ends_this_process(int signal) {
    struct sigaction now {};
    return ::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
}

}  // namespace

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
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        if (ends_this_process(signal)) stops.add(signal);
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
    stops.clear();  // from here on they end this process again
    if (stopped_by != 0) ::raise(stopped_by);
    return facts;
}

}  // namespace muster::launcher
