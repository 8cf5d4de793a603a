#include "tests/integration/runtime/shared_group.h"

#include <memory>
#include <utility>
#include <vector>

#include "worker_runtime/communicator/communicator_body.h"
#include "worker_runtime/shared_memory/local_meeting.h"
#include "worker_runtime/shared_memory/shared_memory_transport.h"
#include "worker_runtime/transport/alone_transport.h"
#include "worker_runtime/transport/fd_watch.h"

namespace muster::test {

using namespace runtime;

namespace {

Result<std::unique_ptr<Transport>> share(const GroupTerms& terms, const std::shared_ptr<FdWatch>& watch) {
    if (terms.size == 1) return make_alone_transport();
    const auto deadline = std::chrono::steady_clock::now() + terms.meeting_timeout;
    auto door = LocalDoor::open(terms.rank);
    if (!door) return door.error();
    auto texts = exchange(terms, "identity", door->identity.encode(), deadline);
    if (!texts) return texts.error();
    std::vector<LocalIdentity> identities;
    for (const auto& text : *texts) identities.push_back(LocalIdentity::decode(text).value());
    return make_shared_memory_transport(terms, std::move(*door), std::move(identities), watch);
}

}  // namespace

Communicator join_shared_group(GroupTerms terms, Duration timeout) {
    auto watch = FdWatch::start().value();
    terms.meeting_timeout = 60s;
    CommunicatorBody::Terms body{.group = terms,
                                 .timeout = timeout,
                                 .make_transport = [watch](const GroupTerms& group) { return share(group, watch); }};
    auto transport = body.make_transport(terms).value();
    return Communicator(std::make_shared<CommunicatorBody>(std::move(body), std::move(transport)));
}

std::unique_ptr<SharedGroup> form_shared_group(const GroupTerms& terms) {
    auto door = LocalDoor::open(terms.rank).value();
    const auto texts = exchange(terms, "identity", door.identity.encode(), no_deadline).value();
    std::vector<LocalIdentity> identities;
    for (const auto& text : texts) identities.push_back(LocalIdentity::decode(text).value());
    return SharedGroup::form(terms, std::move(door), std::move(identities), FdWatch::start().value(),
                             std::chrono::steady_clock::now() + 60s)
        .value();
}

}  // namespace muster::test
