#include "rendezvous/wire/native/who_is_missing.h"

#include <chrono>

#include "rendezvous/base/text/text.h"
#include "rendezvous/base/time.h"

namespace muster::native {

std::string idle_sentence(const WorkerActivity& one, std::uint32_t count, const std::optional<WaitingWorker>& waiting) {
    const bool alone = count == 1;
    auto out = cat(alone ? "has" : "have", " done nothing for ",
                   muster::describe(Duration(std::chrono::milliseconds(one.idle_ms))), " (", one.state);
    if (!one.operation.empty()) out += cat(one.inside ? ", inside " : ", after ", one.operation);
    if (!one.place.empty()) out += cat(", at ", one.place);
    out += ')';
    if (!waiting) return out;
    out += cat("; ", alone ? "it is" : "they are", " missing from ", waiting->operation, ", in which rank ",
               waiting->rank, " (pid ", waiting->pid, ')');
    if (!waiting->host.empty()) out += cat(" on ", waiting->host);
    return out + " waits";
}

}  // namespace muster::native
