#include "agent/doctor/look.h"

#include <utility>

#include "rendezvous/base/text/printable.h"
#include "rendezvous/base/text/text.h"

namespace muster::agent {

const std::string& FactRecord::text(std::string_view field) const {
    static const std::string none;
    const auto found = fields.find(field);
    return found != fields.end() ? found->second : none;
}

std::optional<std::int64_t> FactRecord::number(std::string_view field) const {
    std::int64_t value = 0;
    if (!parse_number(text(field), value)) return std::nullopt;
    return value;
}

std::string gpu_label(const FactRecord& gpu) {
    const auto& bus = gpu.text("bus");
    return cat("GPU ", gpu.text("index"), " (", bus, bus.empty() ? "" : ", ", gpu.text("uuid"), ")");
}

std::vector<const FactRecord*> Look::all(std::string_view name) const {
    std::vector<const FactRecord*> found;
    for (const auto& record : records)
        if (record.name == name) found.push_back(&record);
    return found;
}

const FactRecord* Look::first(std::string_view name) const {
    for (const auto& record : records)
        if (record.name == name) return &record;
    return nullptr;
}

Look parse_look(std::string_view output, std::string why_cut) {
    Look look{.state = Look::State::cut, .why = std::move(why_cut), .records = {}};
    // The last piece is what follows the last newline: nothing, or a line that was cut.
    auto lines = split(output, '\n');
    lines.pop_back();
    for (const auto line : lines) {
        if (line == "end") {
            look.state = Look::State::done;
            look.why.clear();
            break;
        }
        if (line.starts_with("note ")) {
            look.why = printable_line(line.substr(5));
            continue;
        }
        if (look.records.size() == look_records_max) break;
        const auto words = split(line, '\t');
        FactRecord record{.name = std::string(words[0]), .fields = {}};
        for (std::size_t i = 1; i < words.size(); ++i)
            if (const auto equals = words[i].find('='); equals != std::string_view::npos)
                record.fields.emplace(words[i].substr(0, equals), printable_line(words[i].substr(equals + 1)));
        look.records.push_back(std::move(record));
    }
    // A look that announces its steps tells by that where it hangs.
    if (look.state == Look::State::cut && !look.records.empty() && look.records.back().name == "step")
        look.why += cat(", in ", look.records.back().text("name"));
    return look;
}

}  // namespace muster::agent
