#include "worker_runtime/checkpoint/format/safetensors_events.h"

#include <limits>

#include "rendezvous/base/text/text.h"

namespace muster::runtime {

namespace {

/// Larger than the number of dimensions of any real tensor.
constexpr std::size_t dimensions_max = 64;

}  // namespace

std::string SafetensorsEvents::where() const {
    switch (place_) {
        case Place::outside: return "at the start of the header";
        case Place::top: return "in the place of a tensor's description";
        case Place::metadata: return "in __metadata__, where only texts may be";
        case Place::tensor:
        case Place::shape:
        case Place::offsets:
            return field_.empty() ? cat("in tensor ", name_) : cat("in tensor ", name_, ", field ", field_);
    }
    return {};
}

bool SafetensorsEvents::stop(std::string why) {
    if (trouble_.empty()) trouble_ = std::move(why);
    return false;
}

bool SafetensorsEvents::misplaced(std::string_view what) {
    return stop(cat(what, " ", where()));
}

bool SafetensorsEvents::number_unsigned(number_unsigned_t value) {
    if (place_ == Place::offsets && offsets_.size() < 2) {
        offsets_.push_back(value);
        return true;
    }
    if (place_ != Place::shape) return misplaced("a number");
    if (tensor_.shape.size() >= dimensions_max) return stop(cat("tensor ", name_, ": too many dimensions"));
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return stop(cat("tensor ", name_, ": a dimension of ", value));
    }
    tensor_.shape.push_back(static_cast<std::int64_t>(value));
    return true;
}

bool SafetensorsEvents::string(string_t& value) {
    if (place_ == Place::metadata) {
        header_.metadata[field_] = value;
        return true;
    }
    if (place_ != Place::tensor || field_ != "dtype") return misplaced("a text");
    if (const auto type = tensor_type_named(value)) {
        tensor_.type = *type;
    } else if (!unknown_type_) {
        unknown_type_ = cat("tensor ", name_, ": dtype ", value, " is not known to this version");
    }
    return true;
}

bool SafetensorsEvents::start_object(std::size_t) {
    if (place_ == Place::outside) {
        place_ = Place::top;
        return true;
    }
    if (place_ != Place::top) return misplaced("an object");
    fields_.clear();
    field_.clear();
    offsets_.clear();
    tensor_ = {};
    place_ = name_ == metadata_key ? Place::metadata : Place::tensor;
    return true;
}

bool SafetensorsEvents::key(string_t& value) {
    if (place_ == Place::top) {
        name_ = value;
        return names_.insert(value).second || stop(cat("tensor ", value, " occurs twice"));
    }
    field_ = value;
    if (!fields_.insert(value).second) {
        return stop(place_ == Place::metadata ? cat("__metadata__: ", value, " occurs twice")
                                              : cat("tensor ", name_, ": field ", value, " occurs twice"));
    }
    if (place_ == Place::metadata || value == "dtype" || value == "shape" || value == "data_offsets") return true;
    return stop(cat("tensor ", name_, ": an unknown field ", value));
}

bool SafetensorsEvents::end_object() {
    if (place_ == Place::top) {
        place_ = Place::outside;
        return true;
    }
    if (place_ == Place::tensor) {
        for (const char* field : {"dtype", "shape", "data_offsets"}) {
            if (!fields_.contains(field)) return stop(cat("tensor ", name_, ": no ", field));
        }
        if (offsets_.size() != 2) return stop(cat("tensor ", name_, ": data_offsets are not two numbers"));
        tensor_.name = name_;
        tensor_.begin = offsets_[0];
        tensor_.end = offsets_[1];
        header_.tensors.push_back(std::move(tensor_));
    }
    place_ = Place::top;
    return true;
}

bool SafetensorsEvents::start_array(std::size_t) {
    if (place_ != Place::tensor || (field_ != "shape" && field_ != "data_offsets")) return misplaced("a list");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    return true;
}

bool SafetensorsEvents::end_array() {
    place_ = Place::tensor;
    return true;
}

bool SafetensorsEvents::parse_error(std::size_t position, const std::string& /*token*/,
                                    const nlohmann::detail::exception& /*why*/) {
    return stop(cat("not valid JSON, or not UTF-8, at byte ", safetensors_length_bytes + position));
}

}  // namespace muster::runtime
