#include "agent/driver/client_link.h"

namespace muster::agent {

ClientLink::ClientLink(boost::asio::io_context& loop, rendezvous::ClientConfig config)
    : client_(loop, std::move(config),
              {.on_message = [this](native::Message message) { on_message(std::move(message)); },
               .on_fenced = [this](std::string why) { on_fenced(std::move(why)); },
               .on_lost = [this](std::string why) { on_lost(std::move(why)); },
               .on_progress = [this](std::string line) { on_progress(std::move(line)); },
               .on_connected =
                   [this](Endpoint daemon) {
                       if (on_connected) on_connected(daemon);
                   }}) {}

}  // namespace muster::agent
