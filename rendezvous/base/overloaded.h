// One function for std::visit, from a lambda for each alternative.
#pragma once

namespace muster {

template <class... Cases>
struct Overloaded : Cases... {
    using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace muster
