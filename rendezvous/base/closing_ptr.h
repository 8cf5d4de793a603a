// Owns an object that its own handlers under way share. Where a unique_ptr deletes, it calls close(): from then on the
// handlers do nothing, and the object goes with the last of them. Nobody else calls close(), so it comes once.
#pragma once

#include <memory>
#include <utility>

namespace muster {

template <class Shared>
struct Close {
    std::shared_ptr<Shared> shared;
    void operator()(Shared* object) {
        object->close();
        shared.reset();
    }
};

template <class Shared>
using ClosingPtr = std::unique_ptr<Shared, Close<Shared>>;

template <class Shared>
ClosingPtr<Shared> closing(std::shared_ptr<Shared> object) {
    return {object.get(), {std::move(object)}};
}

}  // namespace muster
