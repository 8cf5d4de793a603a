#include "tests/simulation/processes/twin.h"

namespace muster::simulation {

Twin::Twin(Surroundings& world, HostIndex host, Address daemon, const native::Hello& hello,
           const native::Message& first)
    : world_(world), incarnation_(hello.node.incarnation) {
    native::append_frame(words_, hello);
    native::append_frame(words_, first);
    world_.network.connect(host, daemon, 1s, this);
}

void Twin::stream_opened(StreamId stream) {
    world_.network.send(stream, words_);
}

void Twin::stream_received(StreamId stream, std::string bytes) {
    if (answered_) return;
    reader_.append(bytes);
    const auto answer = reader_.next();
    if (answer.has_value() && !answer.value()) return;
    answered_ = true;
    if (answer.has_error()) return world_.chronicle.violated("codec", describe(answer.error()));
    judge(*answer.value());
    world_.network.close(stream);
}

void Twin::judge(const native::Message& answer) {
    if (is_boaster(incarnation_)) {
        if (std::holds_alternative<native::Refused>(answer)) world_.chronicle.count(Happening::boaster_refused);
        return;
    }
    world_.chronicle.tell("the twin of ", world_.invariants.agent(incarnation_).name, " gets ", native::name(answer));
    if (std::holds_alternative<native::Refused>(answer)) return world_.chronicle.count(Happening::twin_refused);
    // The job may be over for the agent as well.
    if (std::holds_alternative<native::JobEnded>(answer)) return;
    if (world_.invariants.must_be_known(incarnation_)) {
        return world_.chronicle.violated("S6", cat("a twin of ", world_.invariants.agent(incarnation_).name,
                                                   " was taken in: ", native::name(answer)));
    }
    // The daemon had given the agent up, and cannot tell the two apart. What follows is no fault of the others.
    world_.invariants.trouble(incarnation_);
}

}  // namespace muster::simulation
