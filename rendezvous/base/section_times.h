// How long workers were in the sections that they named (muster/section.h), by name. Programs choose the names, so they
// are limited.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

/// The last one is "other", for all names beyond the first eight.
inline constexpr std::size_t sections_max = 9;
inline constexpr std::size_t section_name_bytes_max = 64;
/// The section in which programs, and muster's checkpoints, save and load.
inline constexpr std::string_view checkpoint_section = "checkpoint";

struct SectionTime {
    std::string name;
    std::int64_t time_ns = 0;
    friend bool operator==(const SectionTime&, const SectionTime&) = default;
};
using SectionTimes = std::vector<SectionTime>;

/// The place of `name`, a new one, or that of "other".
template <class Entry, class NameOf = std::identity>
std::size_t section_place(std::vector<Entry>& all, std::string_view name, NameOf name_of = {}) {
    auto found = std::ranges::find(all, name, name_of);
    if (found == all.end() && all.size() >= sections_max - 1) found = std::ranges::find(all, name = "other", name_of);
    if (found == all.end()) found = all.insert(found, Entry{std::string(name)});
    return static_cast<std::size_t>(found - all.begin());
}

/// That of `name`, from 0 on, or of "other".
inline std::int64_t& section_time(SectionTimes& all, std::string_view name) {
    return all[section_place(all, name, &SectionTime::name)].time_ns;
}

/// Of both the longer one: of ranks, or of reports that come late.
inline void raise_to(SectionTimes& all, const SectionTimes& more) {
    for (const auto& [name, time_ns] : more)
        if (auto& known = section_time(all, name); time_ns > known) known = time_ns;
}

}  // namespace muster
