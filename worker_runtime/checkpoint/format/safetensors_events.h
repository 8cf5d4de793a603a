// Reads the JSON of a safetensors header event by event. No tree is built, so depth and size of a hostile header cost
// nothing, and duplicate names are detected.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "worker_runtime/checkpoint/format/safetensors.h"

namespace muster::runtime {

/// The only name in a header that is not a tensor's.
inline constexpr std::string_view metadata_key = "__metadata__";

/// nlohmann's SAX interface. A function returns false to stop; trouble() then has the reason.
class SafetensorsEvents {
  public:
    using number_integer_t = nlohmann::json::number_integer_t;
    using number_unsigned_t = nlohmann::json::number_unsigned_t;
    using number_float_t = nlohmann::json::number_float_t;
    using string_t = nlohmann::json::string_t;
    using binary_t = nlohmann::json::binary_t;

    bool null() { return misplaced("null"); }
    bool boolean(bool) { return misplaced("a boolean"); }
    bool number_integer(number_integer_t) { return misplaced("a negative number"); }
    bool number_float(number_float_t, const string_t&) { return misplaced("a number that is not an integer"); }
    bool binary(binary_t&) { return misplaced("binary data"); }
    bool number_unsigned(number_unsigned_t value);
    bool string(string_t& value);
    bool start_object(std::size_t);
    bool key(string_t& value);
    bool end_object();
    bool start_array(std::size_t);
    bool end_array();
    bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& why);

    [[nodiscard]] const std::string& trouble() const { return trouble_; }
    /// Has a message if a tensor has an unknown dtype and everything else is valid.
    [[nodiscard]] const std::optional<std::string>& unknown_type() const { return unknown_type_; }
    SafetensorsHeader take() { return std::move(header_); }

  private:
    enum class Place { outside, top, metadata, tensor, shape, offsets };

    bool stop(std::string why);
    bool misplaced(std::string_view what);
    [[nodiscard]] std::string where() const;

    Place place_ = Place::outside;
    std::string name_;   ///< name of the current tensor
    std::string field_;  ///< current field of the tensor or of the metadata
    TensorEntry tensor_;
    std::vector<std::uint64_t> offsets_;
    std::set<std::string> names_, fields_;
    SafetensorsHeader header_;
    std::string trouble_;
    std::optional<std::string> unknown_type_;
};

}  // namespace muster::runtime
