// "Did you mean": finds the known word most similar to an unknown one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster {

/// The nearest of `known` (the first of several), or empty when none is near: a third of the word's letters may be
/// wrong, one at least. A beginning or an end of a known word counts as nearly the whole of it ("--nprocs",
/// "--restarts").
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace muster
