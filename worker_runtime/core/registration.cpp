#include "worker_runtime/core/registration.h"

#include <algorithm>
#include <limits>
#include <set>

#include "rendezvous/base/text/bytes.h"
#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

constexpr std::size_t bytes_max = std::numeric_limits<std::ptrdiff_t>::max();

Error refused(const Parameter& parameter, std::string_view why) {
    return {Errc::invalid_argument, cat("parameter \"", parameter.name, "\": ", why)};
}

Result<void> check_shape(const Parameter& parameter) {
    if (parameter.shape.size() > dimension_count_max) return refused(parameter, "more than 64 dimensions");
    std::size_t bytes = size_of(parameter.type);
    for (const auto dimension : parameter.shape) {
        if (dimension < 0) return refused(parameter, cat("its shape has a dimension of ", dimension));
        const auto length = static_cast<std::size_t>(dimension);
        if (length != 0 && bytes > bytes_max / length) return refused(parameter, "its shape has too many elements");
        bytes *= length;
    }
    return {};
}

/// Where `list` has a parameter of that name, or its size.
std::size_t position_of(const std::vector<Parameter>& list, const std::string& name) {
    const auto at = std::find_if(list.begin(), list.end(), [&](const Parameter& each) { return each.name == name; });
    return static_cast<std::size_t>(at - list.begin());
}

/// One side of a comparison, for sentences.
struct Side {
    const Registration& registration;
    int rank;
};

/// A parameter that stands at `at` on `has`, where `lacks` has another one or none.
std::string misplaced(const Side& has, const Side& lacks, std::size_t at) {
    const auto& name = has.registration.parameters[at].name;
    const auto& others = lacks.registration.parameters;
    const auto elsewhere = position_of(others, name);
    const std::string place = cat("\"", name, "\" is parameter ", at, " of rank ", has.rank);
    const std::string instead = at < others.size()
                                    ? cat("parameter ", at, " there is \"", others[at].name, "\"")
                                    : cat("it registered ", others.size(), " of ", has.registration.parameters.size());
    if (elsewhere < others.size()) {
        return cat(place, " but parameter ", elsewhere, " of rank ", lacks.rank, " (", instead,
                   "): register the parameters in the same order on all ranks");
    }
    return cat(place, ", and rank ", lacks.rank, " has none of that name (", instead,
               "): build the same model on all ranks");
}

std::string first_setting_difference(const Side& left, const Side& right) {
    const auto& ours = left.registration.settings;
    const auto& theirs = right.registration.settings;
    for (std::size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
        if (i >= ours.size() || i >= theirs.size() || ours[i].first != theirs[i].first) {
            return cat("ranks ", left.rank, " and ", right.rank, " have different settings: their builds differ");
        }
        if (ours[i].second == theirs[i].second) continue;
        return cat("the setting \"", ours[i].first, "\" is ", ours[i].second, " on rank ", left.rank, " but ",
                   theirs[i].second, " on rank ", right.rank, ": give all ranks the same");
    }
    return {};
}

bool read_parameter(ByteReader& reader, Parameter& parameter) {
    parameter.name = reader.blob<std::uint32_t>(name_bytes_max);
    const auto type = reader.number<std::uint8_t>();
    if (!is_data_type(type)) reader.fail();
    parameter.type = static_cast<DataType>(type);
    const auto dimensions = reader.number<std::uint8_t>();
    if (dimensions > dimension_count_max) reader.fail();
    for (int i = 0; i < dimensions && reader.ok(); ++i) parameter.shape.push_back(reader.number<std::int64_t>());
    return reader.ok();
}

}  // namespace

std::size_t element_count(const Parameter& parameter) {
    std::size_t count = 1;
    for (const auto dimension : parameter.shape) count *= static_cast<std::size_t>(dimension);
    return count;
}

std::string describe_kind(const Parameter& parameter) {
    std::string text = cat(name(parameter.type), " [");
    for (std::size_t i = 0; i < parameter.shape.size(); ++i) text += cat(i == 0 ? "" : ", ", parameter.shape[i]);
    return text + "]";
}

Result<void> check_parameters(std::span<const Parameter> parameters) {
    if (parameters.empty()) return Error{Errc::invalid_argument, "no parameters were given"};
    if (parameters.size() > parameter_count_max) {
        return Error{Errc::invalid_argument,
                     cat(parameters.size(), " parameters are more than the ", parameter_count_max, " allowed")};
    }
    std::set<std::string_view> names;
    std::size_t total = 0;
    for (const auto& parameter : parameters) {
        if (parameter.name.empty()) return refused(parameter, "a parameter needs a name");
        if (parameter.name.size() > name_bytes_max) return refused(parameter, "its name is longer than 4096 bytes");
        if (!names.insert(parameter.name).second) return refused(parameter, "its name occurs twice");
        if (!is_floating(parameter.type)) {
            return refused(parameter, cat("gradients are averaged, and ", name(parameter.type), " has no averages"));
        }
        if (auto good = check_shape(parameter); !good) return good;
        const std::size_t bytes = element_count(parameter) * size_of(parameter.type);
        if (total > bytes_max / 2 - bytes / 2) return refused(parameter, "all parameters together are too large");
        total += bytes;
    }
    return {};
}

std::string encode(const Registration& registration) {
    std::string bytes;
    ByteWriter writer(bytes);
    writer.number(static_cast<std::uint32_t>(registration.parameters.size()));
    for (const auto& parameter : registration.parameters) {
        writer.blob<std::uint32_t>(parameter.name);
        writer.number(static_cast<std::uint8_t>(parameter.type));
        writer.number(static_cast<std::uint8_t>(parameter.shape.size()));
        for (const auto dimension : parameter.shape) writer.number(dimension);
    }
    writer.number(static_cast<std::uint32_t>(registration.settings.size()));
    for (const auto& [name, value] : registration.settings) {
        writer.blob<std::uint32_t>(name);
        writer.blob<std::uint32_t>(value);
    }
    return bytes;
}

Result<Registration> decode_registration(std::string_view bytes) {
    ByteReader reader(bytes);
    Registration registration;
    const auto parameters = reader.number<std::uint32_t>();
    if (parameters > parameter_count_max) reader.fail();
    for (std::uint32_t i = 0; i < parameters && reader.ok(); ++i) {
        read_parameter(reader, registration.parameters.emplace_back());
    }
    const auto settings = reader.number<std::uint32_t>();
    if (settings > setting_count_max) reader.fail();
    for (std::uint32_t i = 0; i < settings && reader.ok(); ++i) {
        auto& [name, value] = registration.settings.emplace_back();
        name = reader.blob<std::uint32_t>(name_bytes_max);
        value = reader.blob<std::uint32_t>(name_bytes_max);
    }
    if (!reader.finished()) return Error{Errc::bad_frame, "a peer's list of parameters is damaged"};
    return registration;
}

std::string first_difference(const Registration& left, int left_rank, const Registration& right, int right_rank) {
    const Side a{left, left_rank};
    const Side b{right, right_rank};
    const auto& ours = left.parameters;
    const auto& theirs = right.parameters;
    for (std::size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
        if (i >= ours.size()) return misplaced(b, a, i);
        if (i >= theirs.size()) return misplaced(a, b, i);
        if (ours[i].name != theirs[i].name) {
            // Say what is missing rather than what stands in its place.
            return position_of(ours, theirs[i].name) == ours.size() ? misplaced(b, a, i) : misplaced(a, b, i);
        }
        if (ours[i].type != theirs[i].type || ours[i].shape != theirs[i].shape) {
            return cat("parameter \"", ours[i].name, "\" is ", describe_kind(ours[i]), " on rank ", left_rank, " but ",
                       describe_kind(theirs[i]), " on rank ", right_rank, ": build the same model on all ranks");
        }
    }
    return first_setting_difference(a, b);
}

std::uint64_t hash_bytes(std::string_view bytes) {
    // FNV-1a, and the last step of MurmurHash3 so that the low bits depend on all of it.
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char byte : bytes) {
        hash ^= static_cast<unsigned char>(byte);
        hash *= 0x100000001b3;
    }
    hash ^= hash >> 33;
    hash *= 0xff51afd7ed558ccd;
    hash ^= hash >> 33;
    return hash;
}

}  // namespace muster::runtime
