#include "launcher/host/node_doctor.h"

#include <boost/asio/io_context.hpp>
#include <utility>

namespace muster::launcher {

agent::DoctorFacts look_at_node(const DoctorOrder& order, const Environment& environment) {
    boost::asio::io_context loop{1};
    agent::NodeLooks looks(loop);
    agent::DoctorFacts facts;
    bool is_done = false;
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
    return facts;
}

}  // namespace muster::launcher
