#include "rendezvous/wire/native/failure_cause.h"

#include <algorithm>

#include "rendezvous/base/text/enumerator.h"
#include "rendezvous/wire/native/failure.h"

namespace muster {

std::string_view name(CauseKind kind) {
    return enumerator_name(kind);
}

std::string_view name(FailureKind kind) {
    return enumerator_name(kind);
}

std::string description_of(CauseKind kind) {
    std::string words(name(kind));
    std::replace(words.begin(), words.end(), '_', ' ');
    return words;
}

}  // namespace muster
