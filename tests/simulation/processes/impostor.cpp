#include "tests/simulation/processes/impostor.h"

#include <array>

#include "tests/simulation/job_secret.h"

namespace muster::simulation {

namespace {

/// What he would have an agent believe.
std::string lie() {
    std::string words;
    native::append_frame(words, native::Drain{"an impostor says so"});
    return words;
}

}  // namespace

void Impostor::resay(HostIndex host, Address daemon) {
    world_.chronicle.tell("an impostor repeats an agent's words to the daemon");
    world_.network.connect(host, daemon, 1s, this);
}

void Impostor::stream_opened(StreamId stream) {
    auto words = world_.network.recorded(false);
    if (random_.chance(300)) words.resize(random_.below(words.size() + 1));
    if (!words.empty()) world_.chronicle.count(Happening::tls_impersonated);
    world_.network.send(stream, std::move(words));
    if (random_.chance(500)) world_.network.close(stream);
}

void Impostor::stream_accepted(StreamId stream, std::uint16_t) {
    world_.chronicle.count(Happening::tls_impersonated);
    const bool knows_key = world_.plant == Plant::loses_key;
    switch (knows_key ? 0 : random_.below(4)) {
        case 0:
            channel_ = std::make_unique<rendezvous::PskChannel>(tls_server(knows_key ? job_secret : impostor_secret));
            break;
        case 1: world_.network.send(stream, world_.network.recorded(true)); break;
        case 2: world_.network.send(stream, lie()); break;
        case 3: world_.network.send(stream, std::string(rendezvous::PskChannel::keyless_answer())); break;
    }
}

void Impostor::stream_received(StreamId stream, std::string bytes) {
    if (!channel_) return;
    std::array<char, 4096> heard;
    std::string_view wire = bytes;
    while (channel_->read(wire, heard) > 0) {
    }
    if (channel_->state() == rendezvous::PskChannel::State::open) channel_->write(lie());
    world_.network.send(stream, std::string(channel_->output()));
    channel_->drop_output(channel_->output().size());
}

}  // namespace muster::simulation
