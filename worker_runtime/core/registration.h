// A rank's registration with its gradient reducer, in a form that ranks can compare: its parameters in order, and the
// settings that determine its collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/parameter.h"
#include "rendezvous/base/error.h"

namespace muster::runtime {

inline constexpr std::size_t parameter_count_max = std::size_t{1} << 20;  ///< one byte each travels with every step
inline constexpr std::size_t name_bytes_max = 4096;
inline constexpr std::size_t dimension_count_max = 64;
inline constexpr std::size_t setting_count_max = 64;

/// Elements of one parameter; check_parameters() has seen that they can be counted.
std::size_t element_count(const Parameter& parameter);

/// "f32 [64, 32]".
std::string describe_kind(const Parameter& parameter);

/// invalid_argument, naming the parameter: no parameters or too many, a name that is empty, too long or there twice, a
/// type that has no average, a negative dimension, more bytes than can be addressed.
Result<void> check_parameters(std::span<const Parameter> parameters);

struct Registration {
    std::vector<Parameter> parameters;
    std::vector<std::pair<std::string, std::string>> settings;  ///< ("bucket cap", "25 MiB")
};

/// Everything but the parameters' `data`.
std::string encode(const Registration& registration);

/// What encode() made; bad_frame for anything else.
Result<Registration> decode_registration(std::string_view bytes);

/// A sentence that says where two registrations differ first, by parameter name and rank; empty where they are equal.
/// Parameters come before settings.
std::string first_difference(const Registration& left, int left_rank, const Registration& right, int right_rank);

/// 64 bits of `bytes`: equal for equal bytes, and different for others but for chance.
std::uint64_t hash_bytes(std::string_view bytes);

}  // namespace muster::runtime
